"""Run work in a child process whose modules the service must not load.

`python -m tilewise.service.host.child FUNCTION` is the child.
"""

import importlib
import json
import subprocess
import sys

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.system.children import child_command, child_environment, private_output
from tilewise.search.errors import SearchError
from tilewise.service.errors import ConflictError

LIMIT_S = 60


def answer_of(function: str, what: str, given: str = "") -> str:
    """Return what `package.module:function` makes in a child: a text, or JSON of anything else.

    `given` is JSON of its argument, if it has one; `what` is for messages. Raises ConflictError
    with the last line on stderr if it fails or takes too long.
    """
    try:
        done = subprocess.run(
            child_command(__name__, function),
            env=child_environment(),
            input=given,
            capture_output=True,
            encoding="utf-8",
            timeout=LIMIT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        last = error.stderr.strip().rpartition("\n")[2]
        raise ConflictError(f"{what} cannot be printed here: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise ConflictError(f"printing {what} took over {LIMIT_S} s") from error
    return done.stdout


def main() -> None:
    """Call the function and print what it makes; a refusal is one line on stderr."""
    module, _, name = sys.argv[1].partition(":")
    given = sys.stdin.read()
    out = private_output()
    try:
        made = getattr(importlib.import_module(module), name)(*[json.loads(given)] if given else ())
    except (KernelsError, SearchError) as error:
        sys.exit(" ".join(str(error).split()))
    with out:
        out.write((made if isinstance(made, str) else json.dumps(made)).encode())


if __name__ == "__main__":
    main()
