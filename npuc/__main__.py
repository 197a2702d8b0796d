"""``python -m npuc``: the console script where it is not on the path."""

import sys

from npuc.cli import main

sys.exit(main())
