"""Fields that the lines of an archive share: what a value of a column may be.

A line is checked when it is written as well, so that what one store writes another can read.
"""

import base64
import hashlib
import json
import math
from datetime import UTC, datetime
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

from kernels.errors import KernelsError
from kernels.problem import parse_problem
from kernels.quoting import quoted
from kernels.target import parse_target

INFINITE = "infinity"
_INT_BITS = 31

_compact = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class Line(BaseModel):
    """One line of a member: it has just its fields, each of just its type, and finite numbers."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
    )


def _canonical(text: str) -> str:
    try:
        found = parse_problem(text).canonical
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
    return moment.astimezone(UTC)


def _deviation(value: object) -> object:
    """JSON has no infinity, and NaN is what a database without it gives back: nothing."""
    if value == INFINITE:
        return math.inf
    if value == -math.inf:
        raise ValueError("no result is off by less than nothing")
    return None if isinstance(value, float) and math.isnan(value) else value


def _shown_deviation(value: float | None) -> float | str | None:
    return INFINITE if value == math.inf else value


def _decoded(value: object) -> object:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


def digest_of(value: object) -> str:
    """SHA-256 of a JSON value in its compact form, hex."""
    return hashlib.sha256(_compact(value).encode()).hexdigest()


def is_named(name: str, steps: list[Any]) -> bool:
    """Whether steps have the hash that names their schedule."""
    return digest_of(steps)[:16] == name


Problem = Annotated[str, AfterValidator(_canonical)]
Target = Annotated[str, Field(max_length=100), AfterValidator(_known_target)]
Toolchain = Annotated[str, Field(min_length=1, max_length=255)]
Cache = Literal["hot", "cold"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Hash = Annotated[str, Field(max_length=16)]
Host = Annotated[str, Field(min_length=1, max_length=255)]
Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
Count = Annotated[int, Field(ge=0, lt=2**_INT_BITS)]
Base64 = Annotated[bytes, BeforeValidator(_decoded), PlainSerializer(_encoded, when_used="json")]
Steps = list[dict[str, Any]]
Deviation = Annotated[
    Annotated[float, Field(allow_inf_nan=True)] | None,
    BeforeValidator(_deviation),
    PlainSerializer(_shown_deviation, when_used="json"),
]
"""How far a result was off; infinite for one that was wrong beyond measure."""
