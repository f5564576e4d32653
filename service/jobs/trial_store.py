"""The trials of a job in SQL: the store that a search writes to and resumes from."""

from collections.abc import Sequence
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Select, and_, bindparam, delete, func, insert, literal, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tilewise.search.records import (
    MOST_EARLY,
    MOST_SOLVED,
    Earlier,
    Solved,
    TimedPoint,
    TrialRecord,
)
from tilewise.service.db import models
from tilewise.service.db.base import now
from tilewise.service.db.rows import same_work
from tilewise.service.db.session import Sessions, reading, writing
from tilewise.service.db.trials import earlier_search, is_above_0, log, readable, row
from tilewise.service.errors import ConflictError
from tilewise.service.faults import tell_once
from tilewise.service.jobs import lease
from tilewise.service.jobs.lease import Lease

MOST_JOBS = 1024  # earlier searches that one search looks at
PACES_FOR, MOST_PACES = timedelta(hours=1), 8192  # how fast the machine is
# By itself: the unit of work of a session takes longer than the row.
_INSERT = insert(models.Trial)
_CORRECTED = ("gflops", "low", "high", "time_us", "pace")
_CORRECT = (
    update(models.Trial)
    .where(
        models.Trial.job_id == bindparam("of_job"), models.Trial.number == bindparam("of_number")
    )
    .values({name: bindparam(f"new_{name}") for name in _CORRECTED})
)


def extent(session: Session, job_id: int, budget: int) -> tuple[int, int]:
    """Return how many trials a job has, and their largest number; -1 if it has none.

    Rows that cannot be read do not count: a search tries another candidate in their place.
    """
    query = select(func.count(), func.max(models.Trial.number))
    rows, last = session.execute(query.where(models.Trial.job_id == job_id)).one()
    if rows >= budget:  # rare enough to read them all
        rows = sum(readable(row) is not None for row in session.scalars(_by_number(job_id, 0)))
    return rows, -1 if last is None else last


def is_stored(session: Session, job_id: int, number: int) -> bool:
    """Return whether a job has a trial of a number."""
    query = _by_number(job_id, number).where(models.Trial.number == number)
    return session.scalar(query) is not None


class SqlTrialStore:
    """A `tilewise.search.store.TrialStore` over the trials table.

    `held` is the run that writes: a trial of any other run is refused. None does not check.
    """

    def __init__(self, sessions: Sessions, job_id: int, held: Lease | None = None) -> None:
        self._sessions = sessions
        self._job_id = job_id
        self._held = held
        self._unreadable: set[int] = set()

    def trials(self) -> list[TrialRecord]:
        """Return all finished trials by number; log and leave out damaged rows."""
        self._unreadable = set()
        return self._readable(self._rows(0, None))

    def page(self, start: int, most: int) -> tuple[list[TrialRecord], int | None]:
        """Return the finished trials from number `start`, and where the next page starts.

        Reads at most `most` rows, and leaves out those that are damaged.
        """
        rows = self._rows(start, most + 1)
        more = rows[most].number if len(rows) > most else None
        return self._readable(rows[:most]), more

    def _rows(self, start: int, most: int | None) -> Sequence[models.Trial]:
        with reading(self._sessions) as session:
            return session.scalars(_by_number(self._job_id, start).limit(most)).all()

    def _readable(self, rows: Sequence[models.Trial]) -> list[TrialRecord]:
        found = {row.number: readable(row) for row in rows}
        self._unreadable |= {number for number, trial in found.items() if trial is None}
        return [trial for trial in found.values() if trial is not None]

    def known_failures(self) -> set[str]:
        """Return the hashes of schedules that failed for this problem, target and toolchain.

        Neither the state of that job nor its cache mode matters: what hangs hangs. An error at run
        time does not count: it may be the machine's, such as a full disk.
        """
        failed = models.Trial.state == "failed", models.Trial.failure != "runtime"
        with reading(self._sessions) as session:
            own = session.get_one(models.Job, self._job_id)
            query = (
                select(models.Trial.hash)
                .join(models.Job, models.Job.id == models.Trial.job_id)
                .where(*failed, *same_work(models.Job, own, "cache"))
            )
            return set(session.scalars(query))

    def earlier_speed_factors(self) -> list[list[float]]:
        """Return the machine speed factors of other jobs' trials of the last hour, by job."""
        with reading(self._sessions) as session:
            own = session.get_one(models.Job, self._job_id)
            rows = session.execute(_paces_of_others(own)).all()
        return [
            [pace for _, pace in group if is_above_0(pace)]
            for _, group in groupby(rows, key=itemgetter(0))
        ]

    def add(self, trial: TrialRecord) -> None:
        """Commit one finished trial and extend the lease.

        It replaces a damaged row of its number. Raises ValueError if its number is taken,
        LeaseLostError if another run has the job.
        """
        try:
            with writing(self._sessions) as session:
                if self._held is not None:
                    lease.beat(session, self._held, has_trial=True)
                if trial.number in self._unreadable:
                    session.execute(
                        delete(models.Trial).where(
                            models.Trial.job_id == self._job_id, models.Trial.number == trial.number
                        )
                    )
                session.connection().execute(_INSERT, row(self._job_id, trial))
        except IntegrityError as error:
            raise ValueError(f"trial {trial.number} is stored already") from error

    def correct(self, trials: Sequence[TrialRecord]) -> None:
        """Commit the speeds and speed factors of stored trials; raise LeaseLostError."""
        corrections = [_correction(self._job_id, trial) for trial in trials]
        with writing(self._sessions) as session:
            if self._held is not None:
                lease.beat(session, self._held)
            if corrections:
                session.connection().execute(_CORRECT, corrections)

    def ensure(self, trial: TrialRecord) -> None:
        """Commit one finished trial; if it is stored already, its speed.

        Raises ConflictError if another trial has its number, LeaseLostError if another run has the
        job.
        """
        try:
            self.add(trial)
        except ValueError as error:
            found, _ = self.page(trial.number, 1)
            known = next((one for one in found if one.number == trial.number), None)
            if known is None:  # its row could not be read, and `add` replaces it now
                self.add(trial)
            elif (known.schedule, known.state, known.samples) != (
                trial.schedule,
                trial.state,
                trial.samples,
            ):
                raise ConflictError(
                    f"job {self._job_id} has another trial {trial.number} already"
                ) from error
            elif (known.measurement, known.speed_factor) != (trial.measurement, trial.speed_factor):
                self.correct([trial])

    def earlier(self, operation: str) -> list[Earlier]:
        """Return the earlier searches for an operation (`matmul`), on any target, newest first.

        These are the `MOST_JOBS` newest other jobs with timed candidates and the same cache mode.
        Their outcome does not matter: their trials were checked and timed.
        """
        with reading(self._sessions) as session:
            own = session.get_one(models.Job, self._job_id)
            ran = (
                select(func.count())
                .where(models.Trial.job_id == models.Job.id, models.Trial.time_us.is_not(None))
                .scalar_subquery()
            )
            jobs = (
                select(models.Job.id, models.Problem.canonical, models.Job.target, ran)
                .join(models.Problem, models.Problem.id == models.Job.problem_id)
                .where(
                    models.Problem.canonical.startswith(f"{operation}:", autoescape=True),
                    models.Job.cache == own.cache,
                    models.Job.id != own.id,
                    ran > 0,
                )
                .order_by(models.Job.id.desc())
                .limit(MOST_JOBS)
            )
            rows = session.execute(jobs).all()
        found = [earlier_search(*row) for row in rows]
        return [search for search in found if search is not None]

    def solved(self, searches: Sequence[Earlier]) -> list[Solved]:
        """Return the results of `searches`, in their order."""
        found = self._points([search.key for search in searches])
        return [
            Solved(search.problem, search.target, *map(tuple, found.get(search.key, ((), ()))))
            for search in searches
        ]

    def solved_by(self, keys: Sequence[int]) -> list[Solved]:
        """Return the results by key, without those that transfer cannot use."""
        query = (
            select(models.Job.id, models.Problem.canonical, models.Job.target, literal(0))
            .join(models.Problem, models.Problem.id == models.Job.problem_id)
            .where(models.Job.id.in_(keys))
        )
        with reading(self._sessions) as session:
            rows = {row[0]: row for row in session.execute(query)}
        known = [earlier_search(*rows[key]) for key in keys if key in rows]
        return self.solved([search for search in known if search is not None])

    def _points(self, keys: list[int]) -> dict[int, tuple[list[TimedPoint], list[TimedPoint]]]:
        found: dict[int, tuple[list[TimedPoint], list[TimedPoint]]] = {}
        with reading(self._sessions) as session:
            for row in session.execute(_shared_trials(keys)):
                if not isinstance(row.params, dict) or not is_above_0(row.time_us):
                    tell_once(
                        log, f"a trial of job {row.job_id} is damaged; no search learns of it"
                    )
                    continue
                points, slower = found.setdefault(row.job_id, ([], []))
                is_fast = row.state == "timed" and row.place <= MOST_SOLVED
                (points if is_fast else slower).append((row.params, row.time_us))
        return found


def _by_number(job_id: int, start: int) -> Select[models.Trial]:
    """The trials of a job from a number on."""
    own = models.Trial.job_id == job_id
    query = select(models.Trial).where(own, models.Trial.number >= start)
    return query.order_by(models.Trial.number)


def _correction(job_id: int, trial: TrialRecord) -> dict[str, Any]:
    """Return what `_CORRECT` takes for one trial."""
    columns = row(job_id, trial)
    named = {f"new_{name}": columns[name] for name in _CORRECTED}
    return {"of_job": job_id, "of_number": trial.number, **named}


def _paces_of_others(own: models.Job) -> Select[int, float | None]:
    """Return the query for recent speed factors of other jobs on the target of one, by job."""
    newest = (
        select(models.Job.id)
        .where(models.Job.target == own.target, models.Job.id != own.id)
        .order_by(models.Job.id.desc())
        .limit(MOST_JOBS)
    )
    return (
        select(models.Trial.job_id, models.Trial.pace)
        .where(
            models.Trial.job_id.in_(newest),
            models.Trial.pace.is_not(None),
            models.Trial.state == "timed",
            models.Trial.created_at >= now() - PACES_FOR,
        )
        .order_by(models.Trial.job_id.desc(), models.Trial.number)
        .limit(MOST_PACES)
    )


def _shared_trials(jobs: list[int]) -> Select[Any]:
    """The trials of jobs that other searches receive, by job, the fastest first."""
    is_stopped = models.Trial.state != "timed"
    place = func.row_number().over(
        partition_by=models.Trial.job_id,
        order_by=(is_stopped, models.Trial.time_us, models.Trial.number),
    )
    trial = (
        select(
            models.Trial.job_id,
            models.Trial.number,
            models.Trial.state,
            models.Trial.params,
            models.Trial.time_us,
            place.label("place"),
        )
        .where(models.Trial.job_id.in_(jobs), models.Trial.state.in_(("timed", "pruned")))
        .subquery()
    )
    return (
        select(trial)
        .where(
            or_(
                and_(trial.c.state == "timed", trial.c.place <= MOST_SOLVED),
                trial.c.number < MOST_EARLY,
            )
        )
        .order_by(trial.c.job_id, trial.c.place)
    )
