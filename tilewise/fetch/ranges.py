"""The file of a range in a list: its variants as JSON.

No script is stored for a range, so its file does not depend on the flavors. It has what decides the
code, and no times, which each tuning changes.
"""

import json

from tilewise.backends.choose import Backend
from tilewise.errors import MissingError, UnreadableError
from tilewise.fetch.folder import sha256
from tilewise.fetch.lock import RANGE, LockEntry
from tilewise.kernels.problem import ProblemRange
from tilewise.schema.base import Json

_PARTS = ("problem", "key", "target", "toolchain", "dim", "variants", "spans", "formats")


def find_range(backend: Backend, problems: ProblemRange, target: str) -> Json | str:
    """Return the stored range, or why there is none."""
    try:
        return backend.show(problems.canonical, target)
    except MissingError:
        return "no range is stored"
    except UnreadableError as error:
        return str(error)


def variants_text(found: Json) -> str:
    """Return the text of the file of a stored range."""
    return json.dumps({name: found[name] for name in _PARTS}, indent=2) + "\n"


def range_entry(path: str, found: Json) -> LockEntry:
    """Return the entry of the file of a stored range."""
    digest = sha256(variants_text(found))
    return LockEntry(
        path=path,
        problem=found["problem"],
        key=found["key"],
        kind=RANGE,
        target=found["target"],
        toolchain=found["toolchain"],
        schedule=digest[:16],
        sha256=digest,
        match="toolchain" if found["stale"] else None,
    )
