"""`python -m tilewise`: the same as the command `tilewise`."""

import sys

from tilewise.cli import main

sys.exit(main())
