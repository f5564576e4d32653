"""Tuned ranges of sizes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from tilewise.schema.base import Finite, Json, Reply, older
from tilewise.schema.results import Machine
from tilewise.search.records import CacheMode

SizeValues = int | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RangeLoss(Finite):
    """How much longer the variants take than the fastest schedule of each sample; 0.02 is 2%."""

    geometric_mean: float
    worst: float


@dataclass(frozen=True, kw_only=True)
class RangeSample(Finite):
    """One sampled size: the fastest schedule of all that were timed, and each variant's time.

    `size` is a number, of two dims a list of their values.
    `times_us` has null for a variant that does not serve the size; `variant` is the one that does.
    """

    size: SizeValues
    best: str
    best_us: float
    times_us: tuple[float | None, ...]
    variant: int
    gflops: float


@dataclass(frozen=True, kw_only=True)
class StoredRange(Reply):
    """The variants that serve a range of sizes; `stale` when they are of another toolchain.

    `dim` is the key of the size, or two keys with a comma between. Each of `variants` has its
    steps, their hash, and under each key its smallest and largest value. `spans` has the first and
    last size and the variant of neighbouring sizes that one variant serves; of two dims these are
    the corners of a rectangle, each a list of two values. `formats` counts the layouts of constant
    weights that the variants need together. `trials` is the budget of each sample.
    """

    problem: str
    key: str
    target: str
    cache: Annotated[str, CacheMode]
    toolchain: str
    machine: Machine | None = None
    dim: str
    variants: tuple[Json, ...]
    spans: tuple[tuple[SizeValues, SizeValues, int], ...]
    loss: RangeLoss
    samples: tuple[RangeSample, ...]
    formats: int
    trials: int
    elapsed_s: float
    stale: bool
    created: Annotated[datetime | None, datetime] = older(None)
