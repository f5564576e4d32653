"""A committed bench report as a roofline picture.

    python -m benchmarks.peers.roofline benchmarks/data/results/square.json docs/square.svg

`tilewise bench --plot` draws the same while it measures.
"""

import argparse
import json
from pathlib import Path

from tilewise.bench.roofline import draw


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(draw(json.loads(options.results.read_text())))


if __name__ == "__main__":
    main()
