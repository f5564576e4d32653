"""What of a store goes into an archive."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, or_
from sqlalchemy.sql.elements import SQLCoreOperations

from tilewise.service.db import models


@dataclass(frozen=True)
class Selection:
    """Which results go into an archive; what is empty does not select.

    Attributes:
        problems: canonical strings.
        kinds: operations, such as `matmul`.
        dtypes: types of operands.
        targets: canonical.
        since: only searches that were asked for, or ended, from then on, and what was stored since.
    """

    problems: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    since: datetime | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all of the store is selected."""
        return self == Selection()

    @property
    def names_problems(self) -> bool:
        """Whether some problems are selected, which neither suites nor models are."""
        return bool(self.problems or self.kinds or self.dtypes)

    def told(self) -> dict[str, list[str]]:
        """What was asked for, by option."""
        since = [] if self.since is None else [self.since.isoformat()]
        asked = {
            "problem": list(self.problems),
            "kind": list(self.kinds),
            "dtype": list(self.dtypes),
            "target": list(self.targets),
            "since": since,
        }
        return {name: values for name, values in asked.items() if values}

    def jobs(self) -> list[ColumnElement[bool]]:
        """Conditions on jobs that are joined with their problems."""
        found = self._of_work(models.Job.target)
        if self.since is not None:
            found.append(
                or_(
                    models.Job.created_at >= self.since,
                    models.Job.finished_at >= self.since,
                    models.Job.state.in_(("queued", "running")),
                )
            )
        return found

    def schedules(
        self, model: type[models.Schedule] | type[models.PastSchedule] = models.Schedule
    ) -> list[ColumnElement[bool]]:
        """Conditions on stored or past results that are joined with their problems."""
        found = self._of_work(model.target)
        if self.since is not None:
            found.append(model.created_at >= self.since)
        return found

    def of_place(
        self, target: SQLCoreOperations[str], created: SQLCoreOperations[datetime]
    ) -> list[ColumnElement[bool]]:
        """Conditions on what belongs to a target and a moment, and to no one problem."""
        found = [target.in_(self.targets)] if self.targets else []
        return [*found, *([] if self.since is None else [created >= self.since])]

    def _of_work(self, target: SQLCoreOperations[str]) -> list[ColumnElement[bool]]:
        canonical = models.Problem.canonical
        found: list[ColumnElement[bool]] = []
        if self.problems:
            found.append(canonical.in_(self.problems))
        if self.kinds:
            found.append(or_(*(canonical.startswith(f"{kind}:") for kind in self.kinds)))
        if self.dtypes:
            named = [f",dtype={dtype}" for dtype in self.dtypes]
            ends = [canonical.endswith(text) for text in named]
            inside = [canonical.contains(f"{text},") for text in named]
            found.append(or_(*ends, *inside))
        if self.targets:
            found.append(target.in_(self.targets))
        return found
