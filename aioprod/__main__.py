"""``python -m aioprod``: the command ``aioprod``."""

import sys

from aioprod.cli import main

sys.exit(main())
