"""Prints the inner loop of a stored result: `python -m kernels.native.assembly`."""

import json
import sys

from kernels.errors import KernelsError
from kernels.native.assembly.inner_loop import inspect_result, render


def main() -> None:
    """Answer the result on stdin with its inner loop on stdout; a refusal is a line on stderr."""
    try:
        text = render(inspect_result(json.load(sys.stdin)))
    except KernelsError as error:
        sys.exit(" ".join(str(error).split()))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
