"""An archive, taken into a store in one transaction."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from kernels.errors import KernelsError
from kernels.quoting import quoted
from service.archive import best, places, searches
from service.archive.container import Reader, opened
from service.archive.fields import Line
from service.archive.lines import (
    MEMBERS,
    JobLine,
    MachineLine,
    ModelLine,
    ProblemLine,
    ScheduleLine,
    SuiteLine,
    ToolchainLine,
    TrialLine,
)
from service.archive.manifest import said
from service.archive.merged import Merged, Numbers
from service.db import checked
from service.db.session import Sessions
from service.errors import ArchiveError, BusyError

# Any number; two imports of one archive at once would both find none of it there.
ADVISORY_LOCK = 7_445_002

Kind = TypeVar("Kind", bound=Line)


def restore(
    sessions: Sessions, path: Path, *, resume: bool = False, dry_run: bool = False
) -> Merged:
    """Take an archive into a store, which keeps all that it has; what was done.

    The same archive twice is as good as once. The whole archive is read and checked before
    anything is written, and what is written is one transaction.

    Args:
        sessions: of the database.
        path: of the archive.
        resume: whether to ask anew for the searches that had not ended.
        dry_run: only say what would be done.

    Raises:
        ArchiveError: it is none, or not what was written; nothing is changed.
        BusyError: somebody wrote the same rows meanwhile; nothing is changed.
    """
    with opened(path) as archive:
        archive.check()
        try:
            with checked.writing(sessions) as session:
                merged = _merge(session, archive, resume=resume)
                if dry_run:
                    session.rollback()
        except IntegrityError as error:
            raise BusyError(
                "somebody wrote the same rows to the database meanwhile; try again"
            ) from error
    return merged


def _merge(session: Session, archive: Reader, *, resume: bool) -> Merged:
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})"))
    merged, numbers = Merged(), Numbers()
    trials = searches.Trials(session, numbers, merged)

    taking: list[tuple[type[Line], Callable[..., None]]] = [
        (ProblemLine, partial(places.add_problem, session, numbers=numbers, merged=merged)),
        (ToolchainLine, partial(places.add_toolchain, session, numbers=numbers, merged=merged)),
        (MachineLine, partial(places.add_machine, session, numbers=numbers, merged=merged)),
        (JobLine, partial(searches.add_job, session, numbers=numbers, merged=merged,
                          written_at=archive.manifest.created_at)),
        (TrialLine, trials.add),
        (ScheduleLine, partial(best.add_schedule, session, numbers=numbers, merged=merged)),
        (SuiteLine, partial(places.add_suite, session, merged=merged)),
        (ModelLine, partial(places.add_model, session, numbers=numbers, merged=merged)),
    ]  # fmt: skip
    for kind, add in taking:
        _take(archive, kind, add)
        trials.flush()
    if resume:
        merged.resumed = searches.resume(session, numbers)
    session.flush()
    return merged


def _take(archive: Reader, kind: type[Kind], add: Callable[[Kind], None]) -> None:
    """Read the lines of a member; what is wrong with one names the member and the line."""
    (name,) = (member for member, its in MEMBERS.items() if its is kind)
    for number, line in archive.lines(name):
        try:
            add(kind.model_validate_json(line))
        except ValidationError as error:
            raise ArchiveError(f"{name} line {number}: {said(error)}") from error
        except KeyError as error:
            missing = f"it refers to {quoted(error.args[0])}, which is not in the archive"
            raise ArchiveError(f"{name} line {number}: {missing}") from error
        except (ArchiveError, KernelsError) as error:
            raise ArchiveError(f"{name} line {number}: {error}") from error
