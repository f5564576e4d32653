"""The script of a user's op: its normal form first, then the steps of a schedule."""

from dataclasses import replace

from kernels.loopnest import build
from kernels.mlir.cpu.script import emit_on
from kernels.mlir.own.normal_form import NormalForm
from kernels.mlir.transform.writer import ANY, Writer
from kernels.schedule import Parallel, Schedule, Step, Tile


def emit_own(normal: NormalForm, schedule: Schedule) -> str:
    """The transform module that makes a schedule's loops of an op as its author wrote it.

    Args:
        normal: the op.
        schedule: of its problem.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it can, but not to this op.
    """
    nest = build(normal.problem, schedule)
    told = "" if normal.around else str(nest)
    steps = Schedule(_steps(normal, schedule.steps))

    def opening(writer: Writer, handle: str) -> str:
        return _normalised(normal, writer, handle)

    return emit_on(normal.problem, steps, normal.form, opening, told)


def _steps(normal: NormalForm, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """A schedule's steps with a loop for each dim that is visited alone."""
    space = normal.form.space
    known = [step for step in steps if not isinstance(step, Tile | Parallel) or step.dim in space.dims]
    parallel = tuple(step for step in known if isinstance(step, Parallel))
    rest = tuple(step for step in known if not isinstance(step, Parallel))
    alone = tuple(Tile(dim, 1) for dim in space.lead if Tile(dim, 1) not in rest)
    return (*parallel, *alone, *rest)


def _normalised(normal: NormalForm, writer: Writer, handle: str) -> str:
    """Lines that make the normal form of the op behind a handle; a handle on that."""
    w = writer
    w.line("// the normal form: loops by what they do, and none of one step")
    if normal.form.op != "linalg.generic":
        handle = w.generalize(handle, "generic")
    if normal.has_units:
        w.line("transform.apply_patterns to %func {")
        w.line("  transform.apply_patterns.linalg.fold_unit_extent_dims_via_reshapes")
        w.line("  transform.apply_patterns.canonicalization")
        w.line(f"}} : {ANY}")
        w.line(f"transform.apply_cse to %func : {ANY}")
        handle = w.collect("contraction")
    if normal.interchange != tuple(range(len(normal.interchange))):
        ordered = w.name("ordered")
        w.line(
            f"{ordered} = transform.structured.interchange {handle} "
            f"iterator_interchange = {list(normal.interchange)} : ({ANY}) -> {ANY}"
        )
        handle = ordered
    return handle
