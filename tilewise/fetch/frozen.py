"""Hold a build to its lock file without changing anything."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewise.backends.choose import Backend
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.fetch.folder import FILLING, Folder, keep, kept, sha256
from tilewise.fetch.lock import Lock, LockEntry
from tilewise.fetch.ranges import range_file
from tilewise.fetch.update import WantedFiles
from tilewise.kernels.problem import ProblemRange, parse_any
from tilewise.kernels.target import parse_target


@dataclass(frozen=True)
class LockDifference:
    """A mismatch with the lock file; `is_absent` if the file is only missing."""

    path: str
    reason: str
    is_absent: bool = False


def differences(folder: Folder, lock: Lock, wanted: WantedFiles) -> list[LockDifference]:
    """Return where folder, lock file and list disagree, without any request."""
    return [*_of_the_list(lock, wanted), *_of_the_folder(folder, lock)]


def restore(folder: Folder, lock: Lock, backend: Backend | None) -> list[LockDifference]:
    """Fill a folder that has none of the locked files, or resume an interrupted fill.

    Texts come from the cache folder, then from the store if its text is the locked one. The folder
    is filled whole or left unchanged; returns the files that are not available.
    """
    found = {entry.path: kept(entry.sha256) for entry in lock.entries.values()}
    texts = {path: text for path, text in found.items() if text is not None}
    lacking = [entry for entry in lock.entries.values() if entry.path not in texts]
    why = "the cache folder has no such text"
    if lacking and backend is not None:
        try:
            texts |= dict(_stored(lacking, backend))
            why += ", and the store has another one or none"
        except TilewiseError as error:
            why += f"; {error}"
    gone = [entry for entry in lacking if entry.path not in texts]
    if gone:
        return [LockDifference(entry.path, f"{entry.problem}: {why}") for entry in gone]
    with folder.taken():
        folder.write(FILLING, "")
        for path, text in texts.items():
            folder.write(path, text)
        folder.remove(FILLING)
    return []


def _stored(entries: Sequence[LockEntry], backend: Backend) -> Iterator[tuple[str, str]]:
    """Yield the locked texts that the store still has."""
    for target in {entry.target for entry in entries}:
        of_target = list[LockEntry]()
        for entry in (entry for entry in entries if entry.target == target):
            problem = parse_any(entry.problem)
            if not isinstance(problem, ProblemRange):
                of_target.append(entry)
            elif not isinstance(stored := range_file(backend, problem, target), str):
                yield from _if_locked(entry, stored[1])
        kinds = sorted({entry.kind for entry in of_target})
        problems = sorted({entry.problem for entry in of_target})
        if not of_target:
            continue
        # The locked text is known by its hash: it may be of the same machine under another target.
        answers = backend.look_up(problems, target, kinds, {}, match="nearest")
        found = dict(zip(problems, answers, strict=True))
        for entry in of_target:
            file = found[entry.problem].files.get(entry.kind)
            if file is None or file.etag not in (None, entry.tag):
                continue
            try:
                text = backend.text(found[entry.problem], entry.kind).text or ""
            except MissingError:
                continue
            yield from _if_locked(entry, text)


def _if_locked(entry: LockEntry, text: str) -> Iterator[tuple[str, str]]:
    if sha256(text) == entry.sha256:
        keep(text)
        yield entry.path, text


def _of_the_list(lock: Lock, wanted: WantedFiles) -> Iterator[LockDifference]:
    paths = wanted.paths()
    for path, (problem, kind) in paths.items():
        if path not in lock.entries:
            yield LockDifference(path, f"{problem} is not in the lock file")
        elif not lock.entries[path].is_of(problem, kind):
            yield LockDifference(
                path, f"is locked as {lock.entries[path].problem}, not as {problem}"
            )
    for path, entry in lock.entries.items():
        if path not in paths:
            yield LockDifference(path, f"{entry.problem} is locked, and not in the list")
        elif (why := _why_not_for(wanted.target, entry)) is not None:
            yield LockDifference(path, why)


def _why_not_for(target: str, entry: LockEntry) -> str | None:
    """Return why a locked file is not of a target, of which `host` is any."""
    named = parse_target(target)
    if named.cpu != "host":
        return entry.why_not_for(named.canonical)
    if target == "host" or parse_target(entry.target).threads == named.threads:
        return None
    return f"is locked for {entry.target}, not for {target}"


def _of_the_folder(folder: Folder, lock: Lock) -> Iterator[LockDifference]:
    for path, entry in lock.entries.items():
        try:
            found = folder.digest(path)
        except BadInputError as error:
            yield LockDifference(path, str(error))
            continue
        if found is None:
            yield LockDifference(path, "is not in the folder", is_absent=True)
        elif found != entry.sha256:
            yield LockDifference(
                path, f"has sha256 {found[:12]}, not the locked {entry.sha256[:12]}"
            )
