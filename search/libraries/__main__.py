"""Print the library of one result: `python -m tilewise.search.libraries` reads it on stdin."""

import json
import sys

from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.children import private_output
from tilewise.search.errors import SearchError
from tilewise.search.libraries.library import NotServedError, proven_library


def main() -> None:
    """Print an object with `script`, null if the kernel is not served, and `reason`."""
    found = json.load(sys.stdin)
    answer: dict[str, str | None]
    out = private_output()
    try:
        entry = LibraryEntry.of(parse_problem(found["problem"]), found["best"]["steps"])
        answer = {"script": proven_library([entry], found["target"]).text, "reason": ""}
    except NotServedError as error:
        if not error.is_final:
            sys.exit(_one_line(error))
        answer = {"script": None, "reason": str(error)}
    except (KernelsError, SearchError) as error:
        sys.exit(_one_line(error))
    with out:
        out.write(json.dumps(answer).encode())


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    main()
