"""Write a model's MLIR: `python -m examples.models resnet50 -o resnet50.mlir`."""

import argparse
from pathlib import Path

from examples.models import MODELS
from examples.models.spellings import SPELLINGS, spelled


def main() -> None:
    """Make the model that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m examples.models")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.mlir")
    parser.add_argument("--small", action="store_true", help="few layers of few channels")
    parser.add_argument("--spelling", choices=SPELLINGS, default="linalg", help="default: linalg")
    options = parser.parse_args()
    options.output.write_text(spelled(MODELS[options.model](options.small), options.spelling))


if __name__ == "__main__":
    main()
