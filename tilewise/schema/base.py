"""How objects of the API are declared and read.

The type of a field is the client's. `Annotated[the client's, the service's]` has a narrower one for
the service, since clients read values that their version does not know.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_type_hints

from tilewise.errors import TilewiseError
from tilewise.kernels.system.typed_json import from_json

Json = dict[str, Any]
Interval = tuple[float, float]
Value = TypeVar("Value")

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
Scope = Literal["read", "submit", "admin"]
KeyMatch = Literal["exact", "nearest"]
"""How near an answer has to be: `exact` is of the target itself."""
Match = Literal[KeyMatch, "range"]
"""`range` also answers with the variant of a tuned range that contains the problem."""
MatchKind = Literal["exact", "toolchain", "processor", "range"]
"""How near an answer is; `processor` may be of another toolchain, too, and of other features."""

ALWAYS, NAME = "always", "name"
LARGEST_PORT = 65535


def older(default: Value) -> Value:
    """Declare a field that the service always gives; an older service implies `default`."""
    how: Any = {"default_factory": dict} if default == {} else {"default": default}
    made: Value = field(**how, metadata={ALWAYS: True})
    return made


def declared(kind: type) -> dict[str, Any]:
    """Return the type and default of each field of a request."""
    hints = get_type_hints(kind)
    return {one.name: (hints[one.name], one.default) for one in fields(kind)}


class Finite:
    """Marks objects whose numbers are all finite, as JSON requires."""


class Work(Finite):
    """Marks objects of work that has a `state`."""

    state: str

    @property
    def has_ended(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state not in ("queued", "running")


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An object that a service gave; `document` has also fields that are unknown here."""

    document: Json = field(repr=False, compare=False)


Kind = TypeVar("Kind", bound=Reply)


def read(kind: type[Kind], source: Json) -> Kind:
    """Return the value of an object of a service, ignoring unknown fields.

    Raises TilewiseError naming the field for another form.
    """
    return read_part(kind, {**source, "document": source})


def read_part(kind: type[Value], source: Json) -> Value:
    """Return the value of a part of an object, which keeps no `document`; raise as `read`."""
    try:
        return from_json(kind, source, tolerant=True)
    except ValueError as error:
        raise TilewiseError(f"unexpected answer from the service: {error}") from error
