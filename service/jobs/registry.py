"""The registry of live workers and the speeds of their machines."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from tilewise.service.db import models
from tilewise.service.db.base import is_sound, now
from tilewise.service.db.rows import machine_row, worker_row
from tilewise.service.host.machine import MachineInfo
from tilewise.service.host.process_identity import is_dead

SEEN_EVERY = timedelta(seconds=15)
LOST_AFTER = timedelta(seconds=60)


@dataclass(frozen=True)
class WorkerEntry:
    """A process that takes at most `capacity` jobs for some targets under a toolchain."""

    owner: str
    machine: MachineInfo
    targets: Sequence[str]
    toolchain: str
    capacity: int


@dataclass(frozen=True)
class MachineSpeed:
    """Measured speed of one thread: peaks in GFLOP/s by dtype, and bandwidth in GB/s."""

    peaks: dict[str, float]
    bandwidth_gbs: float


def show(session: Session, entry: WorkerEntry) -> None:
    """Enter a process, or say that it still lives; several drivers may report one at once."""
    row = worker_row(
        session,
        entry.owner,
        machine=machine_row(session, entry.machine),
        targets=list(entry.targets),
        toolchain=entry.toolchain,
        capacity=entry.capacity,
    )
    row.seen_at = row.machine.seen_at = now()


def hosts(session: Session, target: str, toolchain: str) -> set[str]:
    """Return the machines of the registered processes that can time a target, by name."""
    query = select(models.Worker).where(models.Worker.toolchain == toolchain)
    found = filter(is_sound, session.scalars(query))
    return {row.machine.host for row in found if target in row.targets}


def find_machine(session: Session, host: str) -> models.Machine | None:
    """Return the machine of a registered process by its name; None if there is none."""
    query = (
        select(models.Machine)
        .join(models.Worker, models.Worker.machine_id == models.Machine.id)
        .where(models.Machine.host == host)
    )
    row = session.scalar(query.limit(1))
    return row if row is not None and is_sound(row) else None


def leave(session: Session, owner: str) -> None:
    """Delete the row of a process."""
    session.execute(delete(models.Worker).where(models.Worker.owner == owner))


def live(session: Session) -> list[models.Worker]:
    """Return the live worker processes, by host."""
    query = (
        select(models.Worker)
        .join(models.Worker.machine)
        .where(models.Worker.seen_at >= now() - LOST_AFTER)
        .order_by(models.Machine.host, models.Worker.id)
    )
    found = filter(is_sound, session.scalars(query))
    return [row for row in found if is_sound(row.machine) and not is_dead(row.owner)]


def served(session: Session) -> set[tuple[str, str]]:
    """Return the targets of live workers with their toolchains."""
    return {(target, worker.toolchain) for worker in live(session) for target in worker.targets}


def is_gone() -> ColumnElement[bool]:
    """Return whether a process has missed its heartbeats for long."""
    return models.Worker.seen_at < now() - 10 * LOST_AFTER


def note_measured(session: Session, machine: MachineInfo, measured: MachineSpeed) -> None:
    """Store what one thread of a machine was measured to reach."""
    row = machine_row(session, machine)
    row.peaks, row.bandwidth_gbs = dict(measured.peaks), measured.bandwidth_gbs
    row.peaks_at = now()


def needs_measuring(session: Session, machine: MachineInfo, kept: timedelta) -> bool:
    """Return whether a machine's peaks are missing, incomplete or old."""
    row = session.scalar(select(models.Machine).where(models.Machine.host == machine.host))
    if row is None or None in (row.peaks, row.bandwidth_gbs) or row.peaks_at is None:
        return True
    return row.cpu != machine.cpu or not is_sound(row) or row.peaks_at < now() - kept
