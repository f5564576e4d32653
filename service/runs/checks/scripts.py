"""Scripts that a worker reports as proven, made again from their steps.

Scripts are deterministic, so the text that is stored is the service's own. The worker's word is
taken for the outcome of the proof alone, and the header names the worker.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.proof.proof import FAILURES, Proof, annotated
from tilewise.kernels.mlir.transform.module import HEADER_END
from tilewise.kernels.mlir.tuning_spec.config import AnySchedule, Configuration
from tilewise.kernels.mlir.tuning_spec.prove import proven_spec
from tilewise.kernels.mlir.tuning_spec.text import Entry, spec_text
from tilewise.service.runs.checks.work import Fault, JobWork
from tilewise.service.runs.wire.base import MeasurementWire
from tilewise.service.runs.wire.ends import ProofWire

_MLIR = re.compile(r"iree-base-compiler [A-Za-z0-9.+_-]{1,60}")
_MODE = re.compile(r"// beside:   ([0-9.]{1,20} GFLOP/s by IREE's [a-z ]{1,40}: gain [0-9.]{1,20})")
_HEADER_LINE = re.compile(r"// .*")


def proof_of(wire: ProofWire) -> Proof:
    """Return a proof as it was sent; its verdict is computed from its parts."""
    return Proof(
        mlir=wire.mlir,
        script=wire.script or "",
        applied=wire.applied,
        executed=wire.executed,
        max_error=wire.max_error,
        tolerance=wire.tolerance,
        gflops=wire.gflops,
        interval=wire.interval,
        time_us=wire.time_us,
        failure=wire.failure,
        message=wire.message,
    )


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
        yield f"{at}.script", "is missing: the proof is said to hold"
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
    speed = MeasurementWire(gflops=wire.gflops, interval=wire.interval, time_us=wire.time_us)
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
        return spec_text([Entry(work.problem, schedule)])
    return emit_script(work.problem, schedule)


def own_script(work: JobWork, schedule: AnySchedule, wire: ProofWire, by: str) -> str:
    """Return the script of a schedule with the outcome of a checked proof in its header."""
    proof = proof_of(wire)
    if isinstance(schedule, Configuration):
        modes = _MODE.findall((wire.script or "").partition(HEADER_END)[0])
        return proven_spec(work.problem, schedule, proof, modes, work.target.canonical, by)
    target = replace(work.target, threads=1).canonical
    return annotated(_emitted(work, schedule), proof, target, by)
