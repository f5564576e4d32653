"""How an object of the API is declared, and how the client reads one.

The type of a field is what the client gives. Where the service promises more, the type is
`Annotated[the client's, the service's]`: a client reads states that its version does not know.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar, get_type_hints

from tilewise.errors import TilewiseError
from tilewise.kernels.system.typed_json import from_json

Json = dict[str, Any]
Interval = tuple[float, float]
Value = TypeVar("Value")

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
PlanState = Literal["queued", "running", "done", "failed", "cancelled"]
PlanLayouts = Literal["model", "all"]
Scope = Literal["read", "submit", "admin"]
Match = Literal["exact", "nearest"]
"""How near an answer has to be: `exact` is of the target itself."""
MatchKind = Literal["exact", "toolchain", "processor"]
"""How near an answer is; `processor` may be of another toolchain, too, and of other features."""

ALWAYS, NAME = "always", "name"


def older(default: Value) -> Value:
    """Declare a field that the service always gives; `default` is its value of an older one."""
    how: Any = {"default_factory": dict} if default == {} else {"default": default}
    made: Value = field(**how, metadata={ALWAYS: True})
    return made


def declared(kind: type) -> dict[str, Any]:
    """Return the type and the default of each field of a request, by its name."""
    hints = get_type_hints(kind)
    return {one.name: (hints[one.name], one.default) for one in fields(kind)}


class Finite:
    """Holds numbers of the database, all of them finite, as JSON has them."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An object that a service gave.

    Attributes:
        document: the object as JSON had it, with fields that are unknown here.
    """

    document: Json = field(repr=False, compare=False)


Kind = TypeVar("Kind", bound=Reply)


def read(kind: type[Kind], source: Json) -> Kind:
    """Return the value of an object of a service; of a newer one it may have further fields.

    Raises:
        TilewiseError: it is of another form; the message names the field.
    """
    return read_part(kind, {**source, "document": source})


def read_part(kind: type[Value], source: Json) -> Value:
    """Return the value of a part of an object, which keeps no `document`.

    Raises:
        TilewiseError: it is of another form; the message names the field.
    """
    try:
        return from_json(kind, source, tolerant=True)
    except ValueError as error:
        raise TilewiseError(f"the service's answer is of another form: {error}") from error
