"""Lines in other words."""

from __future__ import annotations

from rmetric.importers.line_wording import two_cells


def test_a_row_of_one_long_cell_is_read_in_time_that_grows_with_its_length() -> None:
    assert two_cells(f"| {100_000 * 'said '}|") == f"| {100_000 * 'said '}|"
    assert two_cells("|    loss    | 2.5    |") == "loss: 2.5"
