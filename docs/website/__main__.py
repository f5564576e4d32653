"""Builds the site. A broken link, a broken anchor or any other warning fails the build."""

import argparse
import gc
import sys
from pathlib import Path

from docs.website.build import build


def main() -> int:
    """0 where the site is there; 1, with Sphinx's warnings on stderr, where it is not."""
    parser = argparse.ArgumentParser(prog="python -m docs.website", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("site"), metavar="DIR")
    output = parser.parse_args().output
    gc.disable()  # a third of the time went to looks at trees of pages, which all are needed
    return build(output)


if __name__ == "__main__":
    sys.exit(main())
