"""The HTTP API's responses, as OpenAPI shows them: what a module holds."""

from typing import Any, Literal

from pydantic import BaseModel


class FoundProblemView(BaseModel):
    """A problem of a module, how many of its ops are it, and their places."""

    problem: str
    count: int
    where: list[str]


class SkippedOpView(BaseModel):
    """An op that multiplies or convolves and is no problem, and why."""

    op: str
    reason: str
    where: str


class ImportedView(BaseModel):
    """The problems of a module, in the order of their first ops."""

    problems: list[FoundProblemView]
    skipped: list[SkippedOpView]


class ScheduleOfOpView(BaseModel):
    """The schedule that a script spells."""

    hash: str
    steps: list[dict[str, Any]]


class ProofOfOpView(BaseModel):
    """What a proof on an op established: the largest error, what is allowed, and the speed."""

    max_error: float | None
    tolerance: float | None
    gflops: float | None
    mlir: str


class OpScriptView(BaseModel):
    """The script of an op of a module; `problem` is what the op is by itself.

    `match` says how near the schedule is to what was asked for, as `Tilewise-Match` does elsewhere;
    `stale` that another toolchain than the present one has timed it.
    """

    problem: str
    place: str
    flavor: str
    schedule: ScheduleOfOpView
    target: str
    toolchain: str
    match: Literal["exact", "toolchain", "processor"]
    stale: bool
    proof: ProofOfOpView
    script: str
