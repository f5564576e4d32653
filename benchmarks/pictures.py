"""A committed table as a picture, by one of the plots of `tilewise.plots`."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewise.plots import Picture


def picture(describes: str | None, plot: Callable[[dict[str, Any]], Picture]) -> None:
    """Read the table that the first argument names, and write the picture that the second does."""
    parser = argparse.ArgumentParser(description=describes)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    plot(json.loads(options.results.read_text())).save(options.picture)
