"""``python -m npuc.cli``: the console script where it is not on the path."""

import sys

from npuc.cli.app import main

sys.exit(main())
