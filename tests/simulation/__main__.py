"""``python -m tests.simulation --seed N`` runs a seed again; ``--seeds N`` and ``--seeds
A-B`` run many. See docs/testing.md.
"""

from __future__ import annotations

import sys

from tests.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
