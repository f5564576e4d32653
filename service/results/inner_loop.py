"""The inner loop of a stored result as machine code, printed by a child process.

`python -m tilewise.service.results.inner_loop` is the child. It stands here and not beside what it
calls, since every file of code generation is part of the generator's hash, and would make results
stale.
"""

import json
import sys

from tilewise.kernels.errors import KernelsError
from tilewise.service.results.child import answer_of


def inner_loop_text(source: str) -> str:
    """Return the inner loop of a kernel with its counts and bound; takes a second.

    `source` is from `kernel_source`. Call it in a flight of `Services.kernels`. Raises
    ConflictError if it does not compile here.
    """
    return answer_of("tilewise.service.results.inner_loop", "the inner loop", source)


def main() -> None:
    """Answer the result on stdin with its inner loop on stdout; a refusal is a line on stderr."""
    from tilewise.kernels.native.assembly import inspect_result, render

    try:
        text = render(inspect_result(json.load(sys.stdin)))
    except KernelsError as error:
        sys.exit(" ".join(str(error).split()))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
