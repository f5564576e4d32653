"""What all that is said has in common, and how large its parts may be."""

from typing import Annotated

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
)

from tilewise.search.records import Measurement
from tilewise.search.space.points import TilePoint, point_from_json

LARGEST = 2**31 - 1
LONGEST_MESSAGE = 100_000


def _without_nul(text: str) -> str:
    return text.replace("\0", "")


PLAIN = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Text without control characters: it is printed in terminals, and PostgreSQL stores no NUL."""

Label = Annotated[str, Field(max_length=64, pattern=PLAIN)]
Whole = Annotated[StrictInt, Field(ge=-(2**53), le=2**53)]
Steps = Annotated[list[dict[Label, Whole | Label]], Field(max_length=200)]
Number = Annotated[int, Field(ge=0, le=LARGEST)]
Bytes = Annotated[int, Field(ge=0, le=2**63 - 1)]
Name = Annotated[str, Field(max_length=300, pattern=PLAIN)]
Message = Annotated[str, Field(max_length=LONGEST_MESSAGE), AfterValidator(_without_nul)]
Unbounded = Annotated[float, Field(allow_inf_nan=True)]
"""How far a result is off, which may be infinitely far."""

_Text = Annotated[StrictStr, Field(max_length=300, pattern=PLAIN)]
Params = Annotated[
    dict[Label, StrictBool | Whole | _Text | TilePoint],
    Field(max_length=200),
    BeforeValidator(lambda said: point_from_json(said) if isinstance(said, dict) else said),
]


class Wire(BaseModel):
    """What is said: no more than is declared, and an infinity as text, which JSON lacks."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, ser_json_inf_nan="strings"
    )


class MeasurementWire(Wire):
    """A speed with its 95% interval."""

    gflops: float
    interval: tuple[float, float]
    time_us: float

    @classmethod
    def of(cls, speed: Measurement) -> "MeasurementWire":
        """A speed as it is said."""
        return cls(gflops=speed.gflops, interval=speed.interval, time_us=speed.time_us)

    def measurement(self) -> Measurement:
        """The speed that was said."""
        return Measurement(self.gflops, self.interval, self.time_us)
