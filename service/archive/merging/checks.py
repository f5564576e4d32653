"""Whether the lines of an archive agree with each other, and with their digests.

All of them are looked at before the first is taken in, which is done in pieces: what is found to be
wrong in the middle would leave the pieces before it.
"""

from collections.abc import Callable
from typing import Any

from tilewise.kernels.problem import parse_problem
from tilewise.kernels.quoting import quoted
from tilewise.service.archive.fields import Line
from tilewise.service.archive.lines import (
    JobLine,
    MachineLine,
    ModelLine,
    PastLine,
    ProblemLine,
    ProofLine,
    ScheduleLine,
    ToolchainLine,
    TrialLine,
)
from tilewise.service.archive.rows import travelling
from tilewise.service.db import models
from tilewise.service.errors import ArchiveError
from tilewise.service.results import integrity
from tilewise.service.results.stored import Work

ELSEWHERE = {"job", "problem", "toolchain", "host", "digest", "proofs", "was_best", "ended_at"}
"""What of a schedule's line is no column of its row."""


class Checks:
    """Looks at the lines of an archive in their order."""

    def __init__(self) -> None:
        self._problems: set[str] = set()
        self._toolchains: set[str] = set()
        self._hosts: set[str] = set()
        self._jobs: dict[str, int] = {}
        self._last: tuple[int, int] = (-1, -1)
        self._by_kind: dict[type[Line], Callable[[Any], None]] = {
            ProblemLine: lambda line: self._problems.add(line.problem),
            ToolchainLine: lambda line: self._toolchains.add(line.toolchain),
            MachineLine: lambda line: self._hosts.add(line.host),
            JobLine: self._job,
            TrialLine: self._trial,
            ScheduleLine: self._schedule,
            PastLine: self._schedule,
            ModelLine: lambda line: _refer(self._toolchains, line.toolchain),
        }

    def look_at(self, line: Line) -> None:
        """Look at the next line.

        Raises:
            ArchiveError: it refers to what no line before it is, is there twice, is not in its
                place, or is not what was stored.
        """
        check = self._by_kind.get(type(line))
        if check is not None:
            check(line)

    def _job(self, line: JobLine) -> None:
        if line.job in self._jobs:
            raise ArchiveError("the job is in the archive twice")
        self._refer_to_work(line)
        self._jobs[line.job] = len(self._jobs)

    def _trial(self, line: TrialLine) -> None:
        place = (self._jobs.get(line.job, -1), line.number)
        if place[0] < 0 or place <= self._last:
            raise ArchiveError("its job is not in the archive, or it is not in the jobs' order")
        self._last = place

    def _schedule(self, line: ScheduleLine) -> None:
        work = work_of(line)
        values = line.model_dump(exclude=ELSEWHERE)
        if travelling(work, values, line.job) != line.digest:
            raise ArchiveError("its values do not have its digest")
        self._refer_to_work(line)
        _refer(self._hosts, line.host)
        _refer(self._jobs, line.job)
        for proof in line.proofs:
            if not integrity.is_proof_whole(work, proof_row(proof)):
                raise ArchiveError("a proof of it is not what was proven")

    def _refer_to_work(self, line: JobLine | ScheduleLine) -> None:
        _refer(self._problems, line.problem)
        _refer(self._toolchains, line.toolchain)


def proof_row(line: ProofLine, **others: Any) -> models.Proof:
    """A proof as a row, with the row of its script; `others` are further columns of both."""
    script = line.script
    spelled = None if script is None else models.Script(**script.model_dump(), **others)
    return models.Proof(script=spelled, **line.model_dump(exclude={"script"}), **others)


def work_of(line: ScheduleLine) -> Work:
    """Return what the result of a line is of."""
    key = parse_problem(line.problem).key
    return Work(key, line.problem, line.target, line.toolchain, line.cache)


def _refer(names: set[str] | dict[str, int], name: str) -> None:
    if name not in names:
        raise ArchiveError(f"it refers to {quoted(name)}, which is not in the archive")
