"""Archives of this machine's database: written, and taken in."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tilewise.backends.administration import opened_sessions
from tilewise.backends.base import Json
from tilewise.backends.service_errors import told
from tilewise.errors import BadInputError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import parse_target
from tilewise.service.archive.container import opened
from tilewise.service.archive.export import Selection, export
from tilewise.service.archive.restore import restore
from tilewise.version import VERSION


@dataclass(frozen=True)
class Wanted:
    """What the command line selects; each as it was typed.

    Attributes:
        since: a day or a moment as ISO 8601 has them, in UTC where it names no zone.
    """

    problems: Sequence[str] = ()
    kinds: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    targets: Sequence[str] = ()
    since: str | None = None


def export_store(path: str, wanted: Wanted, database_url: str | None) -> Json:
    """Write an archive; its file, its rows by member, and the damaged rows that it lacks."""
    selection = _selection(wanted)
    with opened_sessions(database_url) as sessions:
        written_by = f"tilewise {VERSION}"
        manifest = export(sessions, Path(path), selection, written_by)
    rows = {name.removesuffix(".jsonl"): part.rows for name, part in manifest.members.items()}
    left_out = {name.removesuffix(".jsonl"): rows for name, rows in manifest.left_out.items()}
    return {"file": path, "rows": rows, "left_out": left_out}


def import_store(path: str, database_url: str | None, *, resume: bool, dry_run: bool) -> Json:
    """Take an archive in; what was, or would be, done."""
    with told(), opened(Path(path)):
        pass  # a database that is absent is not made for what is no archive
    with opened_sessions(database_url) as sessions:
        merged = restore(sessions, Path(path), resume=resume, dry_run=dry_run)
    return {
        "file": path,
        "dry_run": dry_run,
        "added": dict(merged.added),
        "known": dict(merged.known),
        "replaced_schedules": merged.replaced,
        "postponed_trials": merged.postponed,
        "unfinished_jobs": merged.unfinished,
        "resumed_jobs": merged.resumed,
    }


def _selection(wanted: Wanted) -> Selection:
    return Selection(
        problems=tuple(parse_problem(text).canonical for text in wanted.problems),
        kinds=tuple(wanted.kinds),
        dtypes=tuple(wanted.dtypes),
        targets=tuple(map(_canonical_target, wanted.targets)),
        since=None if wanted.since is None else _moment(wanted.since),
    )


def _canonical_target(text: str) -> str:
    named = parse_target(text)
    if named.cpu != "host":
        return named.canonical
    from tilewise.service.host.machine import examine_here

    return examine_here().canonical_target(text)


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadInputError(f"since={text!r} is no day such as 2026-01-31, nor a moment") from error
