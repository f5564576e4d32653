"""What stored schedules would gain over the locked ones."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewise.backends.choose import Backend
from tilewise.fetch.lock import KERNEL, RANGE, Lock, LockEntry
from tilewise.fetch.ranges import RangeFile, range_file
from tilewise.fetch.update import WantedFiles
from tilewise.kernels.problem import ProblemRange
from tilewise.kernels.quoting import columns

if TYPE_CHECKING:  # it loads httpx
    from tilewise.schema.results import Found

Interval = tuple[float, ...]
NOT_STORED = "not stored"


@dataclass(frozen=True)
class FileGain:
    """A locked file compared with what is stored.

    Attributes:
        gain: stored over locked speed, less 1; None if either is unknown.
        verdict: `same`, `faster`, `slower`, `within noise` (the intervals overlap), `not locked`,
            `not stored`, or `changed` of a range, whose variants have no one speed.
        reason: why the locked file does not suit the target.
    """

    path: str
    problem: str
    kind: str
    locked: float | None
    stored: float | None
    gain: float | None
    verdict: str
    reason: str = ""


def gains(backend: Backend, lock: Lock, wanted: WantedFiles) -> list[FileGain]:
    """Return a row for each wanted file."""
    texts = [problem.canonical for problem in wanted.problems]
    found = backend.look_up(texts, wanted.target, wanted.kinds, {}) if texts else []
    of = dict(zip((problem.key for problem in wanted.problems), found, strict=True))
    return [
        _gain_of_range(
            path, problem, lock.entries.get(path), range_file(backend, problem, wanted.target)
        )
        if isinstance(problem, ProblemRange)
        else _gain(path, kind, lock.entries.get(path), of[problem.key])
        for path, (problem, kind) in wanted.paths().items()
    ]


def _gain_of_range(
    path: str, problems: ProblemRange, entry: LockEntry | None, found: RangeFile
) -> FileGain:
    verdict, moved = "not locked", None
    if isinstance(found, str):
        verdict = NOT_STORED
    elif entry is not None:
        verdict = "same" if entry.sha256 == found[0].sha256 else "changed"
        moved = entry.why_not_for(found[0].target)
    return FileGain(path, problems.canonical, RANGE, None, None, None, verdict, moved or "")


def table(rows: list[FileGain]) -> str:
    """Format the rows and their sum."""
    cells = [
        (row.path, _speed(row.locked), "->", _speed(row.stored), _change(row.gain), row.verdict)
        for row in rows
        if row.verdict != "same"
    ]
    better = sum(row.verdict == "faster" for row in rows)
    lines = [*columns(cells, {1, 3, 4}), f"{better} of {len(rows)} files would be faster"]
    return "".join(f"{line}\n" for line in lines)


def _change(gain: float | None) -> str:
    return "" if gain is None else f"{gain:+.1%}"


def _speed(gflops: float | None) -> str:
    return "-" if gflops is None else f"{gflops:.1f}"


def _gain(path: str, kind: str, entry: LockEntry | None, found: "Found") -> FileGain:
    stored, interval = _speed_of(found, kind)
    locked = None if entry is None else entry.gflops
    gain = stored / locked - 1 if stored and locked else None
    verdict = _verdict(entry, found, kind, interval, gain)
    moved = entry and entry.why_not_for(found.target)
    return FileGain(path, found.problem, kind, locked, stored, gain, verdict, moved or "")


def _verdict(
    entry: LockEntry | None,
    found: "Found",
    kind: str,
    interval: Interval | None,
    gain: float | None,
) -> str:
    file = found.files.get(kind)
    if found.result is None or file is None:
        return NOT_STORED
    if entry is None:
        return "not locked"
    if file.etag == entry.tag:
        return "same"
    if gain is None or _overlap(entry.interval, interval):
        return "within noise"
    return "faster" if gain > 0 else "slower"


def _speed_of(found: "Found", kind: str) -> tuple[float | None, Interval | None]:
    if found.result is None:
        return None, None
    if kind == KERNEL:
        return found.result.best.gflops, found.result.best.interval
    proof = found.result.proof
    return (None, None) if proof is None else (proof.gflops, proof.interval)


def _overlap(first: Interval | None, second: Interval | None) -> bool:
    if not first or not second:
        return True
    return first[0] <= second[-1] and second[0] <= first[-1]
