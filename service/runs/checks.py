"""Check the messages of a cluster worker against its job.

Types and ranges are checked where a message is read (`tilewise.service.runs.wire`). What is checked
here needs the job, its trials or the worker's machine.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from statistics import median

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.proof.proof import FAILURES, ScriptProof, annotated
from tilewise.kernels.mlir.transform.module import HEADER_END
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule, Configuration
from tilewise.kernels.mlir.tuning_spec.form import form_of
from tilewise.kernels.mlir.tuning_spec.prove import proven_spec
from tilewise.kernels.mlir.tuning_spec.text import SpecEntry, check_levels, spec_text
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.problem.keys import BF16X3
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.target import TargetName, parse_target
from tilewise.kernels.target.cores import ceiling_gflops
from tilewise.kernels.target.features import differences
from tilewise.search.records import Measurement, TrialRecord
from tilewise.service.db import models
from tilewise.service.errors import RefusedError
from tilewise.service.host.machine import MachineInfo
from tilewise.service.host.process_identity import host_of
from tilewise.service.jobs.outcome import Attempt
from tilewise.service.runs.wire import (
    AttemptWire,
    CandidateWire,
    EndWire,
    MachineWire,
    ProofWire,
    TrialWire,
)

Fault = tuple[str, str]
"""A field of a message, and what is wrong with its value."""

UNNAMED = ""
"""A processor that is not in the table of cores, with the widest units there."""

MARGIN = 1.2
PACES = 4.0
"""How far a speed that was scaled by the machine speed factor may exceed the ceiling."""

SAVED = 4.0
"""Multiplications that other libraries may save: those of Winograd's F(4x4, 3x3)."""

SAME = 0.01
"""By how much a speed may differ from that of its time."""

LONGEST_S = 1e6


@dataclass(frozen=True)
class JobWork:
    """The parts of a run's job that messages are compared with."""

    problem: Problem
    target: TargetName
    budget: int
    peers: bool
    toolchain: str

    @classmethod
    def of(cls, job: models.Job) -> "JobWork":
        """Return the work of a job's row."""
        return cls(
            parse_problem(job.problem.canonical),
            parse_target(job.target),
            job.trials,
            job.peers,
            job.toolchain.identity,
        )

    def steps_fault(self, schedule: AnySchedule) -> str | None:
        """Return why a schedule cannot be one of the job's; None if it can."""
        if isinstance(schedule, Configuration) != (self.target.kind == "iree"):
            steps = "level and pipeline" if self.target.kind == "iree" else "of a schedule"
            return f"target {self.target.canonical} takes steps {steps} alone"
        try:
            if isinstance(schedule, Configuration):
                check_levels(form_of(self.problem), schedule)
                return None
            threads = len(loop_nest(self.problem, schedule).parts)
        except KernelsError as error:
            return str(error)
        if threads > self.target.threads:
            return f"the schedule has {threads} threads; the target has {self.target.threads}"
        return None

    def most_gflops(self, schedule: AnySchedule) -> float:
        """Return the speed that no kernel of a legal schedule exceeds.

        Schedules that save multiplications are counted by those that they make.
        """
        saved = 1.0
        if isinstance(schedule, Schedule) and schedule.algorithm:
            made = 2 * prod(loop_nest(self.problem, schedule).extents.values())
            saved = max(1.0, self.problem.flops / made)
        return MARGIN * saved * self.most_peak_gflops

    @property
    def most_peak_gflops(self) -> float:
        """The multiply-add rate that no measured peak exceeds, without the margin."""
        target = self.target
        # Virtual machines hide the name of a processor: all that have AMX have two wide units.
        cpu = UNNAMED if "amx-tile" in target.features else target.cpu
        name = self.problem.element.name
        of_type = ceiling_gflops(cpu, target.features, name, target.threads)
        if self.problem.quantised_weights:  # multiplied as bytes
            return max(of_type, ceiling_gflops(cpu, target.features, "i8", target.threads))
        if self.problem.accuracy != BF16X3:
            return of_type
        return max(of_type, ceiling_gflops(cpu, target.features, "bf16", target.threads) / 3)

    @property
    def most_peer_gflops(self) -> float:
        """The speed that no other library exceeds."""
        return MARGIN * SAVED * self.most_peak_gflops

    def speed_faults(self, field: str, speed: Measurement, most: float) -> Iterator[Fault]:
        """Yield what is wrong with a measurement that may be at most so fast."""
        low, high = speed.interval
        if not (speed.gflops > 0 and speed.time_us > 0):
            yield field, "speed and time are above 0"
            return
        if speed.gflops > most:
            yield f"{field}.gflops", self.too_fast(speed.gflops, most)
        if not 0 < low <= high <= PACES * max(most, speed.gflops):
            yield f"{field}.interval", f"[{low:g}, {high:g}] is no interval of a speed"
        elif not (1 - SAME) * low <= speed.gflops <= (1 + SAME) * high:
            yield f"{field}.interval", f"[{low:g}, {high:g}] is not around {speed.gflops:g} GFLOP/s"
        wanted = self.problem.flops / speed.gflops / 1e3
        if not (1 - SAME) * wanted <= speed.time_us <= (1 + SAME) * wanted:
            yield (
                f"{field}.time_us",
                f"{speed.time_us:g} us are not {speed.gflops:g} GFLOP/s, which take {wanted:g} us",
            )

    def sample_faults(
        self, field: str, samples: Sequence[float], schedule: AnySchedule
    ) -> Iterator[Fault]:
        """Yield what is wrong with the wall times of a schedule."""
        if not samples:
            return
        if not all(0 < taken <= LONGEST_S for taken in samples):
            yield field, f"times are above 0 and at most {LONGEST_S:g} s"
            return
        speed, most = self.problem.flops / median(samples) / 1e9, self.most_gflops(schedule)
        if speed > most:
            yield field, self.too_fast(speed, most)

    def too_fast(self, gflops: float, most: float) -> str:
        """Return the message about an impossible speed."""
        threads = "1 thread" if self.target.threads == 1 else f"{self.target.threads} threads"
        return (
            f"{gflops:.4g} GFLOP/s is impossible: {threads} of {self.target.cpu} reach at most "
            f"{most:.4g} for {self.problem.element.name}"
        )


def refuse(faults: Iterator[Fault]) -> None:
    """Raise RefusedError if there is any fault."""
    found = tuple(faults)
    if found:
        raise RefusedError(found)


def check_trial(work: JobWork, trial: TrialWire, used: int, last: int, *, is_stored: bool) -> None:
    """Raise RefusedError for a trial of another problem, an impossible one, or one over budget.

    `used` counts trials and the candidates of helpers. `last` is the largest stored number, or -1.
    `is_stored` if the job has a trial of its number, which the store compares. Trials that cannot
    be read keep their numbers, so numbers can exceed the budget by their count.
    """
    is_beyond = used >= work.budget or trial.number >= max(work.budget, last + 2)
    number = f"{trial.number} is beyond the budget of {work.budget} trials"
    refuse(_faults(work, trial, "trial", number if is_beyond and not is_stored else None))


def check_answer(work: JobWork, trial: TrialWire) -> None:
    """Raise RefusedError for an impossible trial of a helper, numbered as its candidate."""
    refuse(_faults(work, trial, "answer", None))


def check_candidates(work: JobWork, offered: Sequence[CandidateWire], used: int) -> None:
    """Raise RefusedError for candidates of another problem, or more than the budget allows.

    `used` counts trials and all candidates, including those offered now.
    """
    refuse(_candidate_faults(work, offered, used))


def _faults(work: JobWork, trial: TrialWire, at: str, number: str | None) -> Iterator[Fault]:
    if number is not None:
        yield f"{at}.number", number
    record = trial.record()
    if trial.state == "failed" and trial.failure is None:
        yield f"{at}.failure", "is missing: the trial has failed"
    if trial.state == "failed" and trial.measurement is not None:
        yield f"{at}.measurement", "a failed trial has none"
    is_refused_step = trial.state == "failed" and trial.failure == "constraint"
    fault = None if is_refused_step else work.steps_fault(record.schedule)
    if fault is not None:
        yield f"{at}.steps", fault
        return
    if trial.measurement is not None:
        most = PACES * work.most_gflops(record.schedule)
        yield from work.speed_faults(f"{at}.measurement", trial.measurement, most)
        yield from work.sample_faults(f"{at}.samples", trial.samples, record.schedule)
    if not 0 <= trial.compile_s <= LONGEST_S:
        yield f"{at}.compile_s", f"{trial.compile_s:g} is not 0 to {LONGEST_S:g} s"
    if trial.max_error is not None and trial.max_error < 0:
        yield f"{at}.max_error", f"{trial.max_error:g} is below 0"


def _candidate_faults(
    work: JobWork, offered: Sequence[CandidateWire], used: int
) -> Iterator[Fault]:
    if offered and used > work.budget:
        yield "offered", f"with trials {used} are beyond the budget of {work.budget} trials"
    for place, wire in enumerate(offered):
        fault = work.steps_fault(wire.schedule)
        if fault is not None:
            yield f"offered.{place}.steps", fault
        control = wire.control
        fault = None if control is None else work.steps_fault(control.schedule)
        if fault is not None:
            yield f"offered.{place}.control.steps", fault


_MLIR = re.compile(r"iree-base-compiler [A-Za-z0-9.+_-]{1,60}")
_MODE = re.compile(
    r"// (?:peer|beside): +([0-9.]{1,20} GFLOP/s by IREE's [a-z ]{1,40}: gain [0-9.]{1,20})"
)
_HEADER_LINE = re.compile(r"// .*")


def proof_of(wire: ProofWire) -> ScriptProof:
    """Return a proof as it was sent; its verdict is computed from its parts."""
    return ScriptProof(**{**wire.model_dump(exclude={"ok"}), "script": wire.script or ""})


def proof_faults(work: JobWork, at: str, schedule: AnySchedule, wire: ProofWire) -> Iterator[Fault]:
    """Yield what is wrong with the proof of a legal schedule."""
    if not _MLIR.fullmatch(wire.mlir):
        yield f"{at}.mlir", "is not a version of iree-base-compiler"
    if wire.failure is not None and wire.failure not in FAILURES:
        yield f"{at}.failure", f"is not one of {', '.join(FAILURES)}"
        return
    if wire.max_error is not None and wire.max_error < 0:
        yield f"{at}.max_error", f"{wire.max_error:g} is below 0"
    if wire.ok != proof_of(wire).ok:
        yield f"{at}.ok", f"{wire.ok} contradicts applied, executed, max_error and failure"
    if wire.ok and not wire.script:
        yield f"{at}.script", "is missing although the proof is reported as ok"
    yield from _speed_faults(work, at, schedule, wire)
    if wire.script:
        yield from _text_faults(work, at, schedule, wire.script)


def _speed_faults(
    work: JobWork, at: str, schedule: AnySchedule, wire: ProofWire
) -> Iterator[Fault]:
    if wire.gflops is None or wire.interval is None or wire.time_us is None:
        if (wire.gflops, wire.interval, wire.time_us) != (None, None, None):
            yield f"{at}.gflops", "gflops, interval and time_us are given together"
        return
    speed = Measurement(wire.gflops, wire.interval, wire.time_us)
    yield from work.speed_faults(at, speed, work.most_gflops(schedule))


def _text_faults(work: JobWork, at: str, schedule: AnySchedule, text: str) -> Iterator[Fault]:
    try:
        own = _emitted(work, schedule)
    except KernelsError as error:
        yield f"{at}.script", f"its steps have no script: {error}"
        return
    header, mark, body = text.partition(HEADER_END)
    is_header = bool(mark) and all(map(_HEADER_LINE.fullmatch, header.splitlines()))
    if not (is_header and body == own.partition(HEADER_END)[2]):
        yield f"{at}.script", "is not the script of its steps"


def _emitted(work: JobWork, schedule: AnySchedule) -> str:
    if isinstance(schedule, Configuration):
        return spec_text([SpecEntry(work.problem, schedule)])
    return emit_script(work.problem, schedule)


def own_script(work: JobWork, schedule: AnySchedule, wire: ProofWire, by: str) -> str:
    """Return the script of a schedule with the outcome of a checked proof in its header."""
    proof = proof_of(wire)
    if isinstance(schedule, Configuration):
        modes = _MODE.findall((wire.script or "").partition(HEADER_END)[0])
        return proven_spec(work.problem, schedule, proof, modes, work.target.canonical, by)
    target = replace(work.target, threads=1).canonical
    return annotated(_emitted(work, schedule), proof, target, by)


_HOST = re.compile(r"[!-~]{1,255}")
_PEER = re.compile(r"[A-Za-z0-9][A-Za-z0-9+_. -]{0,63}")
OTHER_TOOLCHAIN = "the script was not checked: this service has another generator than the job"


def check_begin(owner: str, hosts: Collection[str]) -> None:
    """Raise RefusedError for a process on no machine of a worker of its target.

    `hosts` is empty if there are no registered workers.
    """
    host = host_of(owner)
    if host is None or not _HOST.fullmatch(host):
        refuse(iter([("owner", "is not a process: give host:pid:start")]))
    elif hosts and host not in hosts:
        refuse(iter([("owner", f"no registered worker of the job's target is on {host!r}")]))


def checked_end(
    work: JobWork, body: EndWire, trials: Sequence[TrialRecord], owner: str, toolchain: str
) -> list[Attempt]:
    """Return the attempts of a run's end, with scripts that are made here; raise RefusedError."""
    is_checkable = work.toolchain == toolchain
    refuse(_end_faults(work, body, trials, owner, is_checkable))
    by = host_of(owner) or ""
    return [_attempt(work, wire, by, is_checkable) for wire in body.attempts]


def known_machine(reported: MachineInfo, row: models.Machine | None) -> MachineInfo:
    """Return the machine of a run: what its worker registered, else what the run reports."""
    if row is None:
        return reported
    features = reported.features if row.features is None else tuple(row.features)
    return replace(
        reported,
        cores=row.cores,
        memory_bytes=row.memory_bytes,
        caches=row.caches,
        features=features,
    )


def _end_faults(
    work: JobWork, body: EndWire, trials: Sequence[TrialRecord], owner: str, is_checkable: bool
) -> Iterator[Fault]:
    yield from _machine_faults(work, body.machine, owner)
    timed = {trial.schedule.hash for trial in trials if trial.state == "timed"}
    best = body.best
    yield from _finalist_faults(work, "best", best.schedule, best.measurement, timed)
    for place, (schedule, speed) in enumerate(best.runners_up):
        yield from _finalist_faults(work, f"best.runners_up.{place}", schedule, speed, timed)
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
    work: JobWork, at: str, schedule: AnySchedule, speed: Measurement, timed: Collection[str]
) -> Iterator[Fault]:
    fault = work.steps_fault(schedule)
    if fault is not None:
        yield f"{at}.steps", fault
        return
    if schedule.hash not in timed:
        yield f"{at}.steps", f"schedule {schedule.hash} is no trial of this job that was timed"
    yield from work.speed_faults(f"{at}.measurement", speed, work.most_gflops(schedule))


def _peer_faults(work: JobWork, peers: dict[str, Measurement]) -> Iterator[Fault]:
    if peers and not (work.peers or work.target.kind == "iree"):
        yield "peers", "the job requests none"
    for name, speed in peers.items():
        if not _PEER.fullmatch(name):
            yield "peers", f"{name!r} is not the name of a library"
            continue
        yield from work.speed_faults(f"peers.{name}", speed, work.most_peer_gflops)


def _attempt_faults(
    work: JobWork, at: str, wire: AttemptWire, is_checkable: bool
) -> Iterator[Fault]:
    fault = work.steps_fault(wire.schedule)
    if fault is not None:
        yield f"{at}.steps", fault
    elif wire.proof is not None and is_checkable:
        yield from proof_faults(work, f"{at}.proof", wire.schedule, wire.proof)


def _attempt(work: JobWork, wire: AttemptWire, by: str, is_checkable: bool) -> Attempt:
    schedule = wire.schedule
    if wire.proof is None:
        return Attempt(schedule, None, wire.error, wire.failure)
    if not is_checkable:
        return Attempt(schedule, None, OTHER_TOOLCHAIN)
    script = own_script(work, schedule, wire.proof, by) if wire.proof.script else ""
    return Attempt(schedule, replace(proof_of(wire.proof), script=script))
