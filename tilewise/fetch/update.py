"""Bring a folder and its lock file up to date with the store."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from tilewise.backends.choose import Backend
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.fetch.folder import Folder, keep, kept, sha256
from tilewise.fetch.lock import KERNEL, RANGE, Lock, LockEntry, file_name
from tilewise.fetch.ranges import RangeFile, range_file
from tilewise.kernels.problem import Problem, ProblemRange
from tilewise.search.final_benchmark.quality import quality_of
from tilewise.search.records import Measurement

if TYPE_CHECKING:  # it loads httpx
    from tilewise.schema.results import Found, Text

State = Literal["unchanged", "written", "removed", "left", "missing"]


@dataclass(frozen=True)
class WantedFiles:
    """What a folder should contain: problems, and flavors of scripts or `kernel`.

    Ranges have their variants in place of both.
    """

    listed: Sequence[Problem | ProblemRange]
    kinds: Sequence[str]
    target: str

    @property
    def problems(self) -> list[Problem]:
        """Return the problems of one size."""
        return [one for one in self.listed if not isinstance(one, ProblemRange)]

    def kinds_of(self, problem: Problem | ProblemRange) -> Sequence[str]:
        """Return the kinds of files of a problem or a range."""
        return (RANGE,) if isinstance(problem, ProblemRange) else self.kinds

    def paths(self) -> dict[str, tuple[Problem | ProblemRange, str]]:
        """Return the problem and kind of each file by name."""
        pairs = ((one, kind) for one in self.listed for kind in self.kinds_of(one))
        return {file_name(*pair): pair for pair in pairs}


@dataclass(frozen=True)
class FileOutcome:
    """What happened to one file.

    `removed` files belong to problems that are no longer wanted; an edited one is `left`.
    """

    path: str
    problem: str
    kind: str
    state: State
    reason: str = ""


@dataclass
class Update:
    """One run of `fetch`.

    Attributes:
        lock: the folder's present lock.
        entries: those of the new lock.
        answers: what is stored of each problem, and the file of each range, once requested.
        written: new texts, which are put in place together.
    """

    backend: Backend
    folder: Folder
    lock: Lock
    wanted: WantedFiles
    overwrites: bool = False
    entries: dict[str, LockEntry] = field(default_factory=dict)
    outcomes: list[FileOutcome] = field(default_factory=list)
    answers: "list[tuple[Problem | ProblemRange, Found | RangeFile]]" = field(default_factory=list)
    written: list[tuple[LockEntry, str]] = field(default_factory=list)

    def missing(self) -> list[Problem | ProblemRange]:
        """Return the problems and ranges that lack a stored file."""
        kinds = self.wanted.kinds
        self.ask()
        return [one for one, found in self.answers if any(_why_missing(found, k) for k in kinds)]

    def ask(self) -> None:
        """Look up all problems in one request, and each range in a separate one."""
        target, problems = self.wanted.target, self.wanted.problems
        texts, known = [problem.canonical for problem in problems], self._known()
        answers = self.backend.look_up(texts, target, self.wanted.kinds, known) if texts else []
        ranges = (one for one in self.wanted.listed if isinstance(one, ProblemRange))
        files = [(one, range_file(self.backend, one, target)) for one in ranges]
        self.answers = [*zip(problems, answers, strict=True), *files]

    def run(self) -> Lock:
        """Write the files that `ask` found, remove unwanted ones, and return the new lock.

        Raises BadInputError before any change if an edited file would be replaced.
        """
        for problem, found in self.answers:
            for kind in self.wanted.kinds_of(problem):
                self._see_to(problem, kind, found)
        edited = [made.path for made, _ in self.written if self._is_edited(made)]
        if edited and not self.overwrites:
            files = ", ".join(str(self.folder.path / path) for path in edited)
            are = "is not as it was" if len(edited) == 1 else "are not as they were"
            raise BadInputError(f"{files} {are} fetched; --overwrite replaces what was edited")
        for made, text in self.written:
            self.folder.write(made.path, text)
        self._take_away()
        return Lock.of(self.entries.values(), self.folder.name)

    def _known(self) -> dict[str, dict[str, str]]:
        """Return the tags of files that match the lock.

        Noisy speeds are left out, because they may have been measured again.
        """
        known: dict[str, dict[str, str]] = {}
        for path, (problem, kind) in self.wanted.paths().items():
            entry = self.lock.entries.get(path)
            if (
                entry is not None
                and entry.is_of(problem, kind)
                and entry.quality is None
                and self._is_there(entry)
            ):
                known.setdefault(problem.key, {})[kind] = entry.tag
        return known

    def _is_there(self, entry: LockEntry) -> bool:
        return self.folder.digest(entry.path) == entry.sha256

    def _is_edited(self, made: LockEntry) -> bool:
        """Return whether a file has a text that no fetch has written."""
        found = self.folder.digest(made.path)
        old = self.lock.entries.get(made.path)
        fetched = (made.sha256, old and old.sha256)
        return found is not None and found not in fetched and kept(found) is None

    def _see_to(
        self,
        problem: Problem | ProblemRange,
        kind: str,
        found: "Found | RangeFile",
        *,
        is_renewed: bool = False,
    ) -> None:
        path, old = self._old(problem, kind)
        if isinstance(found, tuple):
            self._write(*found, old)
            return
        if isinstance(found, str):
            self._miss(problem, kind, old, found)
            return
        if found.unchanged:
            if old is None or not self._is_there(old):
                # Somebody has changed the folder since the look-up.
                raise TilewiseError(f"{path} was changed while it was fetched; fetch again")
            self._keep(old, found.target)
            return
        why = _why_missing(found, kind)
        if why is None:
            file = found.files[kind]
            is_same = old is not None and file and file.etag == old.tag
            if old is not None and is_same and old.quality is None and self._is_there(old):
                self._keep(old, found.target)
                return
            try:
                text = self.backend.text(found, kind)
            except MissingError as error:  # an air script is made when it is asked for
                why = str(error)
            else:
                if file and file.etag not in (None, text.etag) and not is_renewed:
                    # Stored since the look-up, which has the speed of the text before it.
                    (present,) = self.backend.look_up(
                        [problem.canonical], self.wanted.target, self.wanted.kinds, {}
                    )
                    self._see_to(problem, kind, present, is_renewed=True)
                    return
                self._write(_entry(path, kind, found, text), text.text or "", old)
                return
        moved = old and old.why_not_for(found.target)
        self._miss(problem, kind, old, f"{why}; {path} {moved}" if moved else why)

    def _miss(
        self, problem: Problem | ProblemRange, kind: str, old: LockEntry | None, why: str
    ) -> None:
        """Report a file that is not stored; its entry stays."""
        path = file_name(problem, kind)
        if old is not None:
            self.entries[path] = old
        self.outcomes.append(FileOutcome(path, problem.canonical, kind, "missing", why))

    def _old(self, problem: Problem | ProblemRange, kind: str) -> tuple[str, LockEntry | None]:
        """Return the name of a file, and its entry if that is of the same problem."""
        path = file_name(problem, kind)
        old = self.lock.entries.get(path)
        return path, old if old is not None and old.is_of(problem, kind) else None

    def _write(self, made: LockEntry, text: str, old: LockEntry | None) -> None:
        keep(text)
        if old is not None and old.sha256 == made.sha256 and self._is_there(old):
            # The same text under another name: its old speed is as true as the new one, unless
            # it was noisy.
            kept = replace(old, etag=made.etag) if old.quality is None else made
            self._keep(replace(kept, target=old.target), made.target)
            return
        self.written.append((made, text))
        self.entries[made.path] = made
        moved = old and old.why_not_for(made.target)
        self.outcomes.append(
            FileOutcome(made.path, made.problem, made.kind, "written", moved or "")
        )

    def _keep(self, old: LockEntry, target: str) -> None:
        """Keep a file, which may be locked for another target by now."""
        self.folder.keep(old.path, old.sha256)
        moved = old.why_not_for(target)
        self.entries[old.path] = old if moved is None else replace(old, target=target)
        self.outcomes.append(FileOutcome(old.path, old.problem, old.kind, "unchanged", moved or ""))

    def _take_away(self) -> None:
        """Remove locked files that are no longer wanted and were not edited."""
        for path, entry in self.lock.entries.items():
            if path not in self.wanted.paths():
                is_ours = self._is_there(entry)
                if is_ours:
                    self.folder.remove(path)
                state: State = "removed" if is_ours else "left"
                self.outcomes.append(FileOutcome(path, entry.problem, entry.kind, state))


def _why_missing(found: "Found | RangeFile", kind: str) -> str | None:
    """Return why a file cannot be fetched; None if it can."""
    if isinstance(found, str | tuple):
        return found if isinstance(found, str) else None
    if found.error is not None:
        return found.error.detail
    if found.unchanged:
        return None
    if found.result is None:
        return "no schedule is stored"
    if found.files.get(kind) is not None:
        return None
    proof = found.result.proof
    why = f": {proof.failure}: {proof.message}" if proof and proof.failure else ""
    return f"no proven {kind} is stored{why}".partition("\n")[0]


def _entry(path: str, kind: str, found: "Found", text: "Text") -> LockEntry:
    """Return the entry of a fetched text; raise TilewiseError if it is not the named one."""
    digest = sha256(text.text or "")
    if kind != KERNEL and text.etag != digest:
        raise TilewiseError(f"{path}: the script came with sha256 {digest}, not {text.etag}")
    assert found.result is not None
    best, proof = found.result.best, found.result.proof
    spelled, gflops, interval = best.hash, best.gflops, best.interval
    if kind != KERNEL and proof is not None:
        spelled, gflops, interval = proof.hash or "", proof.gflops or 0.0, proof.interval
    is_timed = kind in ("cpu", KERNEL)  # an air script is for other hardware
    speed = Measurement(gflops, (interval[0], interval[-1]), 0.0) if interval else None
    return LockEntry(
        path=path,
        problem=found.problem,
        key=found.key,
        kind=kind,
        target=text.target or found.result.target,
        toolchain=text.toolchain or found.result.toolchain,
        schedule=spelled if is_timed else "",
        sha256=digest,
        gflops=round(gflops, 2) if is_timed else None,
        interval=tuple(round(one, 2) for one in interval) if is_timed and interval else None,
        etag=None if text.etag == digest else text.etag,
        match=None if text.match == "exact" else text.match,
        quality="noisy" if is_timed and speed and quality_of(speed) == "noisy" else None,
    )
