"""``python -m aioprod.cli``."""

import sys

from aioprod.cli import main

sys.exit(main())
