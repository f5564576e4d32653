"""A table whose rows are run under leases, a row by one process at a time.

A running row belongs to its owner until the owner ends it, gives it back, is seen dead
on this host, or has not shown itself for `LEASE`. Every claim begins a run with a number of its
own, the row's epoch. A claim is one UPDATE that names the run before it, and what a run changes
is one that names the run itself: of two processes that race one wins and the other is told, and
a run that lost its row changes nothing, also where the next run has the same owner.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Select, Update, and_, or_, select, text, update
from sqlalchemy.orm import Session

from tilewise.service.db.base import now
from tilewise.service.db.models import ACTIVE, Job, Plan, Toolchain
from tilewise.service.host.process_identity import is_dead

LEASE = timedelta(seconds=60)
GRACE = timedelta(seconds=15)
"""For so long after an outage of the database nobody's lease counts as late for those who saw it:
all owners were silent meanwhile, and show themselves as soon as they can."""

MOST_CRASHES = 3
_DAMAGED = "its row in the database is damaged: {}; ask again"

log = logging.getLogger(__name__)

Row = TypeVar("Row", Job, Plan)


class Held(Protocol):
    """One run of a row, as the writes of that run name it."""

    @property
    def number(self) -> int:
        """Of the row."""
        ...

    @property
    def owner(self) -> str:
        """The process that runs it, from `tilewise.service.host.process_identity.me`."""
        ...

    @property
    def epoch(self) -> int:
        """The number of the run among the row's runs."""
        ...


def _drop_nothing(_row: Job | Plan) -> None:
    """Keep all of a row."""


@dataclass(frozen=True)
class LeasedTable(Generic[Row]):
    """The rows of one table.

    Attributes:
        model: of the table.
        kind: of a row, for the log: `job`.
        fault_of: what is wrong with a row; None for a sound one.
        fail: fails a row from outside its run, in the transaction that has read it.
        left: further values of a row that its run leaves in a state.
        drop: forgets what a row keeps only until it has ended.
    """

    model: type[Row]
    kind: str
    fault_of: Callable[[Row], str | None]
    fail: Callable[[Row, str], None]
    left: Callable[[Row, str], dict[str, Any]]
    drop: Callable[[Row], None] = _drop_nothing

    def of_run(self, held: Held) -> Update:
        """A change of the row, if this is its run."""
        row = self.model
        return update(row).where(
            row.id == held.number, row.owner == held.owner, row.epoch == held.epoch
        )

    def changed(self, session: Session, statement: Update) -> bool:
        """Whether a statement has changed a row."""
        returning = statement.returning(self.model.id)
        done = session.execute(returning.execution_options(synchronize_session=False))
        return done.first() is not None

    def holds(self, session: Session, held: Held) -> bool:
        """Whether the row is running, and this is its run."""
        row = self.model
        query = select(row.id).where(
            row.id == held.number,
            row.owner == held.owner,
            row.epoch == held.epoch,
            row.state == "running",
        )
        return session.scalar(query) is not None

    def has_left(self, session: Session, held: Held, state: str) -> bool:
        """Whether the row has ended in a state, and this was its last run."""
        row = self.model
        query = select(row.id).where(
            row.id == held.number, row.epoch == held.epoch, row.state == state, row.owner.is_(None)
        )
        return session.scalar(query) is not None

    def release(self, session: Session, held: Held) -> bool:
        """Let a row wait again; False when this was not its run."""
        return self.end(session, held, state="queued")

    def crash(self, session: Session, held: Held, why: str) -> None:
        """Count the death of a worker: the row waits again, or fails at `MOST_CRASHES`.

        Nothing happens when the run is not the row's any more.
        """
        row = session.get(self.model, held.number, populate_existing=True)
        if row is None:
            return
        broken = self.fault_of(row)
        if broken is not None:
            self.end(session, held, state="failed", error=_DAMAGED.format(broken))
            return
        crashes = row.crashes + 1
        if crashes < MOST_CRASHES:
            self.end(session, held, state="queued", crashes=crashes)
        else:
            error = f"the worker died {crashes} times; the last time: {why}"
            self.end(session, held, state="failed", crashes=crashes, error=error)

    def end(self, session: Session, held: Held, *, state: str, **values: Any) -> bool:
        """Leave a row as its run; False when it was cancelled or taken over meanwhile."""
        row = session.get(self.model, held.number, populate_existing=True)
        if row is None:
            return False
        leaving = {"state": state, "owner": None, "heartbeat_at": None, **self.left(row, state)}
        statement = self.of_run(held).where(self.model.state == "running")
        has_left = self.changed(session, statement.values(**leaving | values))
        session.refresh(row)
        if has_left and state != "queued":
            self.drop(row)
        return has_left

    def free(
        self,
        session: Session,
        targets: Sequence[str],
        toolchain: str,
        *,
        but: Collection[int] = (),
        spares_late: bool = False,
    ) -> Iterator[Row]:
        """The rows that could be taken, by number, those that cannot be read among them.

        On a server each is locked as it is found, and those that another process looks at are
        passed over: of many that claim at once each finds a row of its own, and none waits for
        another.

        Args:
            session: a transaction that writes.
            targets: the canonical targets that are served.
            toolchain: `tilewise.kernels.system.toolchain.identity()`.
            but: rows that are passed over, such as those that the owner runs already. Their
                heartbeat may be late though their process lives: after a SIGSTOP or a suspend.
            spares_late: whether rows whose owner is silent are left to it, as for `GRACE` after
                an outage of the database.
        """
        found = self.waiting(session, targets, toolchain, but=but, spares_late=spares_late)
        one = found.limit(1).with_for_update(of=self.model, skip_locked=True)
        after = 0
        while (row := session.scalar(one.where(self.model.id > after))) is not None:
            after = row.id
            yield row

    def waiting(
        self,
        session: Session,
        targets: Sequence[str],
        toolchain: str,
        *,
        but: Collection[int] = (),
        spares_late: bool = False,
    ) -> Select[Row]:
        """The query of `free`, for a look without locks."""
        row = self.model
        # As text, for an index of the active rows alone serves only who asks in its own words.
        of_these = row.target.in_(targets), text(f"{row.__tablename__}.{ACTIVE}")
        running = session.scalars(select(row).where(*of_these, row.state == "running"))
        orphans = [
            one.id for one in running if self.fault_of(one) or (one.owner and is_dead(one.owner))
        ]
        is_free = or_(row.state == "queued", row.id.in_(orphans))
        if not spares_late:
            is_late = or_(row.heartbeat_at.is_(None), row.heartbeat_at < now() - LEASE)
            is_free = or_(is_free, and_(row.state == "running", is_late))
        return (
            select(row)
            .join(row.toolchain)
            .where(*of_these, Toolchain.identity == toolchain, is_free, row.id.not_in(but))
            .order_by(row.id)
        )

    def take(self, session: Session, row: Row, owner: str, **values: Any) -> bool:
        """Begin a run of a row that was read in this transaction; whether nobody else was first."""
        moment, table = now(), self.model
        statement = (
            update(table)
            .where(table.id == row.id, table.state == row.state, table.epoch == row.epoch)
            .values(
                state="running",
                owner=owner,
                epoch=table.epoch + 1,
                heartbeat_at=moment,
                started_at=row.started_at or moment,
                unserved_since=None,
                **values,
            )
        )
        if _is_late(row):  # it may have shown itself since the row was read
            late = or_(table.heartbeat_at.is_(None), table.heartbeat_at < moment - LEASE)
            statement = statement.where(late)
        is_taken = self.changed(session, statement)
        session.refresh(row)
        return is_taken

    def is_free(self, row: Row) -> bool:
        """Whether a row waits, or is known to have lost the run that it had."""
        if row.state != "running":
            return row.state == "queued"
        return _is_late(row) or (row.owner is not None and is_dead(row.owner))

    def fail_damaged(self, session: Session, row: Row) -> bool:
        """Fail a row that cannot be read, with a message that says so; False for a sound one."""
        broken = self.fault_of(row)
        if broken is None:
            return False
        message = _DAMAGED.format(broken)
        log.error("%s %d fails: %s", self.kind, row.id, message)
        self.fail(row, message)
        session.flush()
        return True


def _is_late(row: Job | Plan) -> bool:
    """Whether a running row has shown no sign of late, or none at all, which no claim leaves."""
    if row.state != "running":
        return False
    return row.heartbeat_at is None or row.heartbeat_at < now() - LEASE
