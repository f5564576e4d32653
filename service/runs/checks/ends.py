"""The result of a run, compared with its job, and the values of it that are stored."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule, read_steps
from tilewise.kernels.target.features import differences
from tilewise.search.records import TrialRecord
from tilewise.service.db import models
from tilewise.service.host.machine import MachineInfo
from tilewise.service.host.process_identity import host_of
from tilewise.service.jobs.outcome import Attempt
from tilewise.service.runs.checks.scripts import own_script, proof_faults, proof_of
from tilewise.service.runs.checks.work import MARGIN, Fault, JobWork, refuse
from tilewise.service.runs.wire.base import MeasurementWire, Steps
from tilewise.service.runs.wire.ends import AttemptWire, EndWire, MachineWire

_HOST = re.compile(r"[!-~]{1,255}")
_PEER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_. -]{0,63}")
OTHER_TOOLCHAIN = "the script was not checked: this service has another generator than the job"


def check_begin(owner: str, hosts: Collection[str]) -> None:
    """Refuse a process that names the machine of no worker of its target.

    Args:
        owner: the process, as it names itself.
        hosts: machines of the registered workers that serve the target; empty if there are none.

    Raises:
        RefusedError: names the field.
    """
    host = host_of(owner)
    if host is None or not _HOST.fullmatch(host):
        refuse(iter([("owner", "is not a process: give host:pid:start")]))
    elif hosts and host not in hosts:
        refuse(iter([("owner", f"no registered worker of the job's target is on {host!r}")]))


def checked_end(
    work: JobWork,
    body: EndWire,
    trials: Sequence[TrialRecord],
    owner: str,
    toolchain: str,
) -> list[Attempt]:
    """Return the attempts of a run's end, with scripts that are made here.

    Args:
        work: of the job.
        body: as it was sent.
        trials: of the job, as they are stored.
        owner: the process that runs the job.
        toolchain: of this service.

    Raises:
        RefusedError: names the fields that do not fit the job.
    """
    is_checkable = work.toolchain == toolchain
    refuse(_faults(work, body, trials, owner, is_checkable))
    by = host_of(owner) or ""
    return [_attempt(work, wire, by, is_checkable) for wire in body.attempts]


def known_machine(said: MachineInfo, row: models.Machine | None) -> MachineInfo:
    """Return the machine of a run: what its worker registered, else what the run reports.

    The row of a registered machine is the business of the process that registers workers.
    """
    if row is None:
        return said
    features = said.features if row.features is None else tuple(row.features)
    return replace(
        said,
        cores=row.cores,
        memory_bytes=row.memory_bytes,
        caches=row.caches,
        features=features,
    )


def _faults(
    work: JobWork,
    body: EndWire,
    trials: Sequence[TrialRecord],
    owner: str,
    is_checkable: bool,
) -> Iterator[Fault]:
    yield from _machine_faults(work, body.machine, owner)
    timed = {trial.schedule.hash for trial in trials if trial.state == "timed"}
    best = body.best
    finalists = [("best", best.steps, best.measurement)]
    finalists += [
        (f"best.runners_up.{place}", one.steps, one.measurement)
        for place, one in enumerate(best.runners_up)
    ]
    for at, steps, measurement in finalists:
        yield from _finalist_faults(work, at, steps, measurement, timed)
    most = MARGIN * work.most_peak_gflops
    if not 0 < best.peak_gflops <= most:
        yield "best.peak_gflops", work.too_fast(best.peak_gflops, most)
    yield from _peer_faults(work, body.peers)
    for place, wire in enumerate(body.attempts):
        yield from _attempt_faults(work, f"attempts.{place}", wire, is_checkable)


def _machine_faults(work: JobWork, machine: MachineWire, owner: str) -> Iterator[Fault]:
    if machine.host != host_of(owner):
        yield "machine.host", f"{machine.host!r} is not the machine that began the run"
    target = work.target
    if machine.cpu != target.cpu:
        yield "machine.cpu", f"{machine.cpu!r} is not the target's {target.cpu}"
    elif differences(machine.cpu, machine.features) != target.differences:
        yield "machine.features", f"are not those of the target {target.canonical}"
    if machine.cores < target.threads:
        threads = target.threads
        yield "machine.cores", f"{machine.cores} are fewer than the target's {threads} threads"


def _finalist_faults(
    work: JobWork, at: str, steps: Steps, speed: MeasurementWire, timed: Collection[str]
) -> Iterator[Fault]:
    schedule, fault = _read(work, steps)
    if schedule is None:
        yield f"{at}.steps", fault
        return
    if schedule.hash not in timed:
        yield f"{at}.steps", f"schedule {schedule.hash} is no trial of this job that was timed"
    yield from work.speed_faults(f"{at}.measurement", speed, work.most_gflops(schedule))


def _peer_faults(work: JobWork, peers: dict[str, MeasurementWire]) -> Iterator[Fault]:
    if peers and not (work.peers or work.target.kind == "iree"):
        yield "peers", "the job asks for none"
    for name, speed in peers.items():
        if not _PEER.fullmatch(name):
            yield "peers", f"{name!r} is not the name of a library"
            continue
        yield from work.speed_faults(f"peers.{name}", speed, work.most_peer_gflops)


def _attempt_faults(
    work: JobWork, at: str, wire: AttemptWire, is_checkable: bool
) -> Iterator[Fault]:
    schedule, fault = _read(work, wire.steps)
    if schedule is None:
        yield f"{at}.steps", fault
    elif wire.proof is not None and is_checkable:
        yield from proof_faults(work, f"{at}.proof", schedule, wire.proof)


def _read(work: JobWork, steps: Steps) -> tuple[AnySchedule | None, str]:
    """Return the schedule of some steps, or None and why it is not one of the job's."""
    try:
        schedule = read_steps(steps)
    except KernelsError as error:
        return None, str(error)
    fault = work.steps_fault(schedule)
    return (schedule, "") if fault is None else (None, fault)


def _attempt(work: JobWork, wire: AttemptWire, by: str, is_checkable: bool) -> Attempt:
    schedule = wire.schedule()
    if wire.proof is None:
        return Attempt(schedule, None, wire.error, wire.failure)
    if not is_checkable:
        return Attempt(schedule, None, OTHER_TOOLCHAIN)
    script = own_script(work, schedule, wire.proof, by) if wire.proof.script else ""
    return Attempt(schedule, replace(proof_of(wire.proof), script=script))
