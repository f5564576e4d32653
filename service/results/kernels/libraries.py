"""The library for IREE of one stored result: made, proven and timed once, in a child, and kept.

A kernel that IREE did not find, or does not make faster, is kept as that: the next one who asks
learns it at once.
"""

import hashlib
import json

from tilewise.service.errors import NotFoundError
from tilewise.service.results.child import answer_of

FLAVOR = "iree"


def library_tag(source: str, toolchain: str) -> str:
    """A strong entity tag of the library that the present toolchain makes of `source`."""
    return hashlib.sha256(f"{FLAVOR}\n{toolchain}\n{source}".encode()).hexdigest()


def library_document(source: str) -> str:
    """What came of a result inside IREE, found out now, as JSON.

    Raises:
        ConflictError: this machine or this toolchain cannot make or prove it.
    """
    return answer_of("tilewise.search.libraries", "the library", source)


def library_of(document: str) -> str:
    """The library.

    Raises:
        NotFoundError: there is none, since IREE is as fast without; the message has the times.
    """
    found = json.loads(document)
    if found["script"] is None:
        raise NotFoundError(f"no script of flavor {FLAVOR} is served: {found['reason']}")
    return str(found["script"])
