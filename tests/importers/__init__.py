import pytest

pytest.register_assert_rewrite("tests.importers.layouts")
