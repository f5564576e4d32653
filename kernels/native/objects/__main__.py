"""The process that makes and proves an object: `python -m tilewise.kernels.native.objects`."""

import json
import sys

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.native.objects.document import proven_document


def main() -> None:
    """Answer the result on stdin with its object's document; a refusal is one line on stderr."""
    try:
        document = proven_document(json.load(sys.stdin))
    except KernelsError as error:
        sys.exit(" ".join(str(error).split()))
    # What differs from run to run is no part of what an entity tag names.
    document["proof"] = {name: document["proof"][name] for name in ("max_error", "tolerance")}
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
