"""Reports of suites, as they are sent: what `tilewise bench --json` prints."""

from math import exp, isclose, log
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    ValidationError,
    model_validator,
)

from tilewise.kernels.problem import parse_problem
from tilewise.kernels.quoting import quoted
from tilewise.kernels.target.model import LONGEST_TARGET
from tilewise.search.final_benchmark.quality import Quality

MOST_PROBLEMS = 1000
MOST_NAMES = 30
MOST_COUNT = 10**9
CLOSE = 1e-6  # relative; what is summed up elsewhere may differ in the last digits


def _printable(text: str) -> str:
    if not text.replace("\n", " ").isprintable():
        raise ValueError("has characters that cannot be printed")
    return text


def _canonical(text: str) -> str:
    found = parse_problem(text).canonical
    if found != text:
        raise ValueError(f"is spelled {quoted(found)}")
    return text


Name = Annotated[str, Field(max_length=200), AfterValidator(_printable)]
Prose = Annotated[str, Field(max_length=4000), AfterValidator(_printable)]
Canonical = Annotated[str, Field(max_length=1000), AfterValidator(_canonical)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[StrictInt, Field(ge=1, le=MOST_COUNT)]
Number = Annotated[StrictInt, Field(ge=0, le=MOST_PROBLEMS)]


class _Strict(BaseModel):
    """What has just these fields, and finite numbers."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SpeedOf(_Strict):
    """A speed with its 95% interval; older reports lack the quality."""

    gflops: Positive
    interval: tuple[Positive, Positive]
    time_us: Positive
    quality: Quality | None = None


class OursOf(SpeedOf):
    """The speed of our schedule, and its share of the peak of the same run."""

    peak_fraction: Positive | None = None


class PeerOf(SpeedOf):
    """A peer's fastest way; `output` where it wrote a narrower type than the problem's result."""

    variant: Name
    output: Name | None = None


class OracleOf(_Strict):
    """The fastest peer of a problem."""

    peer: Name
    gflops: Positive


class ComparedOf(_Strict):
    """One problem and its peers, all from the same rounds."""

    problem: Canonical
    label: Name
    count: Count
    ours: OursOf | None
    reason: Prose
    schedule: Name | None
    peers: Annotated[dict[Name, PeerOf], Field(max_length=MOST_NAMES)]
    absent: Annotated[dict[Name, Prose], Field(max_length=MOST_NAMES)]
    oracle: OracleOf | None
    ratio: Positive | None


class MachineOf(_Strict):
    """The machine that a suite was measured on."""

    processor: Name
    target: Annotated[str, Field(max_length=LONGEST_TARGET), AfterValidator(_printable)]
    cores: Annotated[StrictInt, Field(ge=1, le=2**20)]
    memory_gib: Positive
    caches: Annotated[dict[Name, Annotated[StrictInt, Field(ge=0)]], Field(max_length=MOST_NAMES)]
    bandwidth_gbs: Positive
    system: Name
    toolchain: Annotated[str, Field(max_length=255), AfterValidator(_printable)]
    peers: Annotated[dict[Name, Name], Field(max_length=MOST_NAMES)]
    peak_gflops: Annotated[dict[Name, Positive], Field(max_length=MOST_NAMES)]


class WeightedOf(_Strict):
    """Speed of the whole suite, each problem by its count."""

    ours_gflops: Positive
    oracle_gflops: Positive
    ours_s: Positive
    oracle_s: Positive
    ratio: Positive


class SuiteReport(_Strict):
    """A suite measured against other libraries, as `tilewise bench --json` prints it."""

    suite: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_printable)]
    source: Prose
    machine: MachineOf
    problems: Annotated[list[ComparedOf], Field(min_length=1, max_length=MOST_PROBLEMS)]
    counted: Number
    left_out: Number
    geomean_ratio: Positive | None
    weighted: WeightedOf | None

    @model_validator(mode="after")
    def _sums_agree(self) -> "SuiteReport":
        """Refuse sums that are not those of the problems."""
        ratios = [one.ratio for one in self.problems if one.ratio is not None]
        if (self.counted, self.left_out) != (len(ratios), len(self.problems) - len(ratios)):
            raise ValueError(f"counted: {len(ratios)} of the {len(self.problems)} have a ratio")
        mean = exp(sum(map(log, ratios)) / len(ratios)) if ratios else None
        if not _agree(self.geomean_ratio, mean):
            raise ValueError(f"geomean_ratio: that of the problems is {mean}")
        if (self.weighted is None) != (mean is None):
            raise ValueError("weighted: there is one if and only if a problem has a ratio")
        return self

    @classmethod
    def checked(cls, given: object) -> "SuiteReport":
        """Validate a report; raise ValueError with one line that names the field."""
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from error

    def document(self) -> dict[str, Any]:
        """Return the report as it was sent."""
        return self.model_dump(mode="json", exclude_unset=True)


def _agree(given: float | None, found: float | None) -> bool:
    if given is None or found is None:
        return given is found
    return isclose(given, found, rel_tol=CLOSE)
