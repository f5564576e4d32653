"""Lines of an archive, taken into a store a piece at a time."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby

from sqlalchemy.orm import Session

from tilewise.service.archive.fields import Line
from tilewise.service.archive.lines import (
    JobLine,
    MachineLine,
    ModelLine,
    PastLine,
    ProblemLine,
    ScheduleLine,
    SuiteLine,
    ToolchainLine,
    TrialLine,
)
from tilewise.service.archive.merging import best, places, searches
from tilewise.service.archive.merging.features import Features
from tilewise.service.archive.merging.merged import Merged, Numbers


class Taking:
    """Takes the lines of an archive in, in their order.

    Args:
        written_at: the moment of the archive.
        features: completes the targets of older formats.

    Attributes:
        merged: what was done so far.
    """

    def __init__(self, written_at: datetime, features: Features) -> None:
        self._written_at = written_at
        self._features = features
        self._numbers = Numbers()
        self.merged = Merged()

    def take(self, session: Session, lines: Sequence[Line]) -> None:
        """Take in the next lines.

        Args:
            session: a transaction that writes; no other import does meanwhile.
            lines: each refers to none but those before it.

        Raises:
            ArchiveError: one of them is not what was stored.
        """
        for kind, some in groupby(lines, type):
            if kind is TrialLine:
                self._take_trials(session, some)
            else:
                for line in some:
                    self._take_one(session, line)
        session.flush()

    def resume(self, session: Session) -> None:
        """Ask anew for the searches that had not ended."""
        self.merged.resumed = searches.resume(session, self._numbers)

    def _take_trials(self, session: Session, lines: Iterable[Line]) -> None:
        trials = [line for line in lines if isinstance(line, TrialLine)]
        searches.add_trials(session, trials, self._numbers, self.merged)

    def _take_one(self, session: Session, line: Line) -> None:
        numbers, merged = self._numbers, self.merged
        line = self._features.completed(line)
        match line:
            case ProblemLine():
                places.add_problem(session, line, numbers, merged)
            case ToolchainLine():
                places.add_toolchain(session, line, numbers, merged)
            case MachineLine():
                places.add_machine(session, line, numbers, merged)
            case JobLine():
                searches.add_job(session, line, numbers, merged, self._written_at)
            case PastLine():
                best.add_past(session, line, numbers, merged)
            case ScheduleLine():
                best.add_schedule(session, line, numbers, merged)
            case SuiteLine():
                places.add_suite(session, line, merged, self._features.of_report(line.report))
            case ModelLine():
                places.add_model(session, line, numbers, merged)
