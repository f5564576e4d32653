"""Field types that the lines of an archive share.

A line is checked when it is written as well, so that what one store writes another can read.
"""

import base64
import hashlib
import json
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
)

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target import parse_target
from tilewise.kernels.target.model import LONGEST_TARGET
from tilewise.search.space.points import TilePoint, point_from_json
from tilewise.service.api.requests import printable
from tilewise.service.db.base import now
from tilewise.service.db.trials import unpack_samples

INFINITE = "infinity"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SKEW = timedelta(days=1)
LONGEST_S = 1e9
LONGEST_TEXT = 4 << 20
LONGEST_COLUMN = 100_000
MOST_SAMPLES = 1 << 20
BYTES_OF_SAMPLE = 8
DEEPEST = 32
_INT_BITS = 31

_compact = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class Line(BaseModel):
    """One line of a member, with exactly its fields, exact types and finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def _canonical(text: str, parse: Callable[[str], Any] = parse_problem) -> str:
    try:
        found: str = parse(text).canonical
    except KernelsError as error:
        raise ValueError(str(error)) from error
    if found != text:
        raise ValueError(f"the canonical string is {quoted(found)}")
    return text


def _known_target(text: str) -> str:
    try:
        parse_target(text)
    except KernelsError as error:
        raise ValueError(str(error)) from error
    return text


def _in_utc(moment: datetime) -> datetime:
    try:
        found = moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("is not a moment in UTC") from error
    if not EPOCH <= found <= now() + SKEW:
        raise ValueError("is before 1970, or more than a day ahead of this machine's clock")
    return found


def _plain(value: Any) -> Any:
    """Return a JSON value that every database keeps and every reader prints.

    Raises ValueError for numbers that are not finite or too large, and for deep nesting.
    """
    waiting = [(value, 0)]
    while waiting:
        part, depth = waiting.pop()
        if depth > DEEPEST:
            raise ValueError(f"is nested more than {DEEPEST} deep")
        if isinstance(part, dict):
            waiting += [(one, depth + 1) for pair in part.items() for one in pair]
        elif isinstance(part, list):
            waiting += [(one, depth + 1) for one in part]
        elif isinstance(part, float) and not math.isfinite(part):
            raise ValueError("has a number that is not finite")
        elif isinstance(part, int) and not -(2**63) <= part < 2**63:
            raise ValueError("has a number of more than 64 bits")
        elif isinstance(part, str) and len(part) > LONGEST_TEXT:
            raise ValueError(f"has a text of more than {LONGEST_TEXT} characters")
    return value


def _few(value: Any) -> Any:
    """Return a JSON value that is no larger than one of a column needs to be."""
    if len(_compact(value)) > LONGEST_COLUMN:
        raise ValueError(f"has more than {LONGEST_COLUMN} characters as JSON")
    return value


def _samples(packed: bytes) -> bytes:
    if len(packed) % BYTES_OF_SAMPLE:
        raise ValueError("samples are not whole numbers of 8 bytes")
    if not all(0 < taken <= LONGEST_S for taken in unpack_samples(packed)):
        raise ValueError(f"samples are times above 0 and at most {LONGEST_S:g} s")
    return packed


def _deviation(value: object) -> object:
    """JSON has no infinity, and NaN is what a database without it gives back: nothing."""
    if value == INFINITE:
        return math.inf
    if isinstance(value, int | float) and value < 0:
        raise ValueError("an error cannot be negative")
    return None if isinstance(value, float) and math.isnan(value) else value


def digest_of(value: object) -> str:
    """Return the SHA-256 of a JSON value in compact form, hex."""
    return hashlib.sha256(_compact(value).encode()).hexdigest()


def is_named(name: str, steps: list[Any]) -> bool:
    """Return whether steps have the hash that names their schedule."""
    return digest_of(steps)[:16] == name


Problem = Annotated[str, Field(max_length=2000), AfterValidator(_canonical)]
Range = Annotated[
    str, Field(max_length=2000), AfterValidator(lambda text: _canonical(text, parse_range))
]
Target = Annotated[str, Field(max_length=LONGEST_TARGET), AfterValidator(_known_target)]
Toolchain = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(printable)]
Cache = Literal["hot", "cold"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Hash = Annotated[str, Field(max_length=16), AfterValidator(printable)]
Host = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(printable)]
Name = Annotated[str, Field(max_length=64), AfterValidator(printable)]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Seconds = Annotated[float, Field(ge=0, le=LONGEST_S)]
Speed = Annotated[float, Field(gt=0, le=1e9)]
"""In GFLOP/s, or in GB/s."""

Micros = Annotated[float, Field(gt=0, le=1e6 * LONGEST_S)]
Sizes = Annotated[dict[Name, Annotated[int, Field(ge=0, lt=2**63)]], Field(max_length=100)]
"""In bytes, by name."""

Features = Annotated[list[Name], Field(max_length=1000)]
Speeds = Annotated[dict[Name, Speed], Field(max_length=100)]
Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Count = Annotated[int, Field(ge=0, lt=2**_INT_BITS)]
Samples = Annotated[
    bytes,
    BeforeValidator(lambda one: base64.b64decode(one, validate=True) if type(one) is str else one),
    Field(max_length=8 * MOST_SAMPLES),
    AfterValidator(_samples),
    PlainSerializer(lambda value: base64.b64encode(value).decode(), when_used="json"),
]
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Params = Annotated[
    dict[Name, Whole | Annotated[str, Field(max_length=300)] | bool | TilePoint],
    Field(max_length=200),
    BeforeValidator(lambda value: point_from_json(value) if isinstance(value, dict) else value),
]
"""A point; archives of formats 1 to 3 have its tile as text."""

Document = Annotated[dict[str, Any], AfterValidator(_plain)]
Column = Annotated[dict[str, Any], AfterValidator(_plain), AfterValidator(_few)]
"""Of a row that has other columns too."""

Steps = Annotated[
    list[dict[str, Any]], Field(max_length=200), AfterValidator(_plain), AfterValidator(_few)
]
Deviation = Annotated[
    Annotated[float, Field(allow_inf_nan=True)] | None,
    BeforeValidator(_deviation),
    PlainSerializer(lambda value: INFINITE if value == math.inf else value, when_used="json"),
]
"""How far a result was off; infinite for one that was wrong beyond measure."""
