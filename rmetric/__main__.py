"""``python -m rmetric``: the command ``rmetric``."""

import sys

from rmetric.commands import main

sys.exit(main())
