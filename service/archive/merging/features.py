"""Targets of archives of formats 1 and 2, which do not name the features of their machine.

They get those of the machine that timed a result, as migration 0019 has it for databases: as far as
the archive says them, else `features=unknown`.
"""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tilewise.kernels.target import TargetName, parse_target
from tilewise.kernels.target.features import UNKNOWN, differences
from tilewise.service.archive.fields import Line
from tilewise.service.archive.lines import JobLine, MachineLine, ModelLine, ProofLine, ScheduleLine
from tilewise.service.archive.merging.checks import proof_row, work_of
from tilewise.service.results import integrity

SINCE = 3
"""The format whose targets name features."""

Differences = tuple[str, ...]
_UNKNOWN: Differences = (UNKNOWN,)


class Features:
    """Completes the targets of an archive, once all its lines were looked at.

    Args:
        archive: its format.
    """

    def __init__(self, archive: int) -> None:
        self._is_old = archive < SINCE
        self._machines: dict[str, tuple[str, Differences]] = {}
        self._jobs: dict[str, Differences] = {}
        self._work: dict[tuple[str, str], set[Differences]] = defaultdict(set)

    def look_at(self, line: Line) -> None:
        """Note what a line says of machines; those come before what was timed on them."""
        if isinstance(line, MachineLine):
            found = differences(line.cpu, line.features) if line.features else _UNKNOWN
            self._machines[line.host] = line.cpu, found
        elif isinstance(line, ScheduleLine | JobLine):
            found = self._timed_on(parse_target(line.target), line.host)
            if found != _UNKNOWN:
                self._jobs[line.job] = found
                self._work[line.target, line.toolchain].add(found)

    def completed(self, line: Line) -> Line:
        """Return a line whose target names features, with the digests that follow."""
        if not self._is_old or not isinstance(line, JobLine | ScheduleLine | ModelLine):
            return line
        named = parse_target(line.target)
        if isinstance(line, ModelLine):
            return line.model_copy(update={"target": self._of_work(named, line.toolchain)})
        found = self._timed_on(named, line.host)
        if isinstance(line, JobLine):
            found = self._jobs.get(line.job, found)
            if found == _UNKNOWN and line.state in ("queued", "running"):
                found = self._shared(named.cpu) or ()
        made = line.model_copy(update={"target": replace(named, differences=found).canonical})
        if not isinstance(made, ScheduleLine):
            return made
        proofs = [_sealed(made, proof) for proof in made.proofs]
        return made.model_copy(update={"proofs": proofs})

    def of_report(self, report: dict[str, Any]) -> str:
        """Return the target of a suite's report, whose own text stays."""
        machine = report["machine"]
        target: str = machine["target"]
        return self._of_work(parse_target(target), machine["toolchain"]) if self._is_old else target

    def _timed_on(self, named: TargetName, host: str | None) -> Differences:
        cpu, found = self._machines.get(host or "", ("", _UNKNOWN))
        return found if cpu == named.cpu else _UNKNOWN

    def _of_work(self, named: TargetName, toolchain: str) -> str:
        found = _only(self._work[named.canonical, toolchain])
        if found is None:
            found = self._shared(named.cpu)
        return replace(named, differences=_UNKNOWN if found is None else found).canonical

    def _shared(self, cpu: str) -> Differences | None:
        """The differences that all machines of a processor's name share; None for none such."""
        found = _only({found for name, found in self._machines.values() if name == cpu})
        return None if found == _UNKNOWN else found


def _only(found: Collection[Differences]) -> Differences | None:
    return next(iter(found)) if len(found) == 1 else None


def _sealed(line: ScheduleLine, proof: ProofLine) -> ProofLine:
    """A proof with the digest that it has with the target of a line."""
    digest = integrity.proof_digest(work_of(line), proof_row(proof))
    return proof.model_copy(update={"digest": digest})
