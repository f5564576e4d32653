"""The file of a range in a list: its variants as JSON.

No script is stored for a range, so its file does not depend on the flavors. It has what decides the
code, and no times, which each tuning changes.
"""

import json

from tilewise.backends.choose import Backend
from tilewise.errors import MissingError, UnreadableError
from tilewise.fetch.folder import sha256
from tilewise.fetch.lock import RANGE, LockEntry, file_name
from tilewise.kernels.problem import ProblemRange

RangeFile = tuple[LockEntry, str] | str
"""The entry and the text of the file of a stored range, or why there is none."""
_PARTS = ("problem", "key", "target", "toolchain", "dim", "variants", "spans", "formats")


def range_file(backend: Backend, problems: ProblemRange, target: str) -> RangeFile:
    """Return the file of a stored range."""
    try:
        found = backend.show(problems.canonical, target)
    except MissingError:
        return "no range is stored"
    except UnreadableError as error:
        return str(error)
    text = json.dumps({name: found[name] for name in _PARTS}, indent=2) + "\n"
    digest = sha256(text)
    entry = LockEntry(
        path=file_name(problems, RANGE),
        problem=found["problem"],
        key=found["key"],
        kind=RANGE,
        target=found["target"],
        toolchain=found["toolchain"],
        schedule=digest[:16],
        sha256=digest,
        match="toolchain" if found["stale"] else None,
    )
    return entry, text
