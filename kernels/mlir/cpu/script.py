"""What a script of a problem cannot do, or does otherwise than the native kernel.

`emit_script`: a schedule as a transform script for real MLIR.
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewise.kernels.errors import LoweringError, UnsupportedError
from tilewise.kernels.mlir.cpu.borders import axes
from tilewise.kernels.mlir.cpu.loops import LoopEmitter
from tilewise.kernels.mlir.cpu.register_tile import InnerProductEmitter, KernelEmitter
from tilewise.kernels.mlir.cpu.windows import WindowEmitter, padding_of_blocks
from tilewise.kernels.mlir.payload.contraction import gathers_patches
from tilewise.kernels.mlir.payload.form import Form, form
from tilewise.kernels.mlir.payload.images import splits_lines
from tilewise.kernels.mlir.transform.module import HEADER_END, MODULE, with_payload
from tilewise.kernels.mlir.transform.sequences import (
    bufferize,
    cleanup,
    drop_unit_dims,
    fuse_products,
    hoist_accumulators,
    lower_vectors,
    named_sequence,
)
from tilewise.kernels.mlir.transform.writer import ANY, Writer
from tilewise.kernels.nest import Nest, nest_of, printed
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule, loop_nest

_WIDENED = {
    "bf16": "bf16 is widened to f32: MLIR's transform dialect reaches no bf16 dot product",
    "f16": "f16 is widened to f32 and multiplied there",
    "i8": "i8 is widened to i32: MLIR's transform dialect reaches no dot product (VNNI)",
}


def notes(problem: Problem) -> tuple[str, ...]:
    """One line for each thing to know about scripts of `problem`; empty for most."""
    found = []
    if problem.element.name in _WIDENED:
        found.append(_WIDENED[problem.element.name])
    if problem.has_constant_weights:
        found.append(
            "constant weights are an ordinary argument: where the schedule packs them, "
            "every run does, and the speed includes it"
        )
    if problem.has_transposed_a:
        found.append("pack A copies blocks of the transposed A as they lie, [depth, rows]")
    nest = nest_of(problem)
    if nest.group:
        found += _across_groups(problem, nest)
    elif nest.image and nest.dim(nest.col).extent == 1:
        found.append(
            "each group has one channel and so one column: the loops multiply scalars, "
            "no vector runs along the groups"
        )
    if not nest.group and nest.operand("B").is_gathered:
        found.append(
            "the image's patches are gathered ahead, in a pass of their own; pack B copies them"
        )
    return tuple(found)


def _across_groups(problem: Problem, nest: Nest) -> list[str]:
    found = []
    many_inputs = nest.dim(nest.k).extent > 1
    has_several = many_inputs or nest.group > 1
    if gathers_patches(problem):
        where = "ahead, in a pass of their own" if many_inputs else "plane by plane"
        found.append(
            f"the pixels that a column of taps reads of a line are gathered {where}: no transform "
            "loads pixels that lie apart into a vector"
        )
    elif splits_lines(problem):
        found.append(
            "lines are copied plane by plane, parted by what the stride leaves of an index"
        )
    elif problem.pad and problem.has_channels_first:
        found.append(
            "planes are copied with their padding where vectors reach beside a line: no transform "
            "shifts a vector along a line, so scripts copy what the native kernel reads in place"
        )
    if not problem.has_channels_first and has_several:
        copied = ", which are copied with their padding" if problem.pad else ""
        found.append(
            "an op of the payload spreads each group's channels over lanes, pixel by pixel of a "
            f"register tile{copied}: no transform orders lanes by groups"
        )
    return found


FLAVORS = ("cpu",)
Opening = Callable[[Writer, str], str]


@dataclass(frozen=True)
class Script:
    """A transform script and what it was made from."""

    problem: Problem
    schedule: Schedule
    flavor: str
    text: str

    @classmethod
    def emit(cls, problem: Problem, schedule: Schedule, flavor: str = "cpu") -> "Script":
        """`emit_script` with its arguments kept; raises what that raises."""
        return cls(problem, schedule, flavor, emit_script(problem, schedule, flavor))

    @property
    def module(self) -> str:
        """The script together with its payload, ready for `iree-opt --transform-interpreter`."""
        return with_payload(self.problem, self.text)


def emit_script(problem: Problem, schedule: Schedule, flavor: str = "cpu") -> str:
    """The transform module that turns the payload of `problem` into the schedule's loop nest.

    Raises:
        UnsupportedError: no script covers the flavor, or a step of the schedule.
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: it can, but its blocks cannot be made static.
    """
    if flavor not in FLAVORS:
        raise UnsupportedError(f"flavor={flavor} is not one of {', '.join(FLAVORS)}", "flavor")
    nest = loop_nest(problem, schedule)
    if nest.algorithm is not None:
        raise UnsupportedError(
            f"{problem}: the step {nest.algorithm.name} has no script: upstream has no operation "
            "that transforms blocks while it packs them",
            "steps",
        )
    shape = form(nest)
    _check_vectors(shape)
    main, others = _windows(shape) if nest.group else _products(shape)
    return _assembled(schedule, nest, tuple(printed(nest)), main, others)


def emit_on(
    schedule: Schedule,
    shape: Form,
    opening: Opening,
    shared: Sequence[str] = (),
    loop_lines: Sequence[str] = (),
) -> str:
    """The transform module that makes the loops of an op in another form.

    Args:
        schedule: of the op's problem, for the header.
        shape: the op once `opening` is done, and its loops; a product, not a convolution across
            groups.
        opening: writes what makes that form of the op behind a handle, and gives the new handle.
        shared: named sequences that `opening` includes.
        loop_lines: what the header says of the loops.

    Raises:
        LoweringError: the blocks cannot be made static, or the vectors cannot run.
    """
    _check_vectors(shape)
    main, others = _products(shape, opening)
    return _assembled(schedule, shape.nest, loop_lines, main, [*others, *shared])


def _check_vectors(shape: Form) -> None:
    """Raise where what the vectors of a nest run along does not lie side by side."""
    nest, tile, is_split = shape.nest, shape.nest.tile, shape.nest.compute.lanes > 1
    if is_split and shape.transposes_rows and nest.dim(nest.k).extent > 1:
        raise LoweringError(
            f"{nest.problem}: a split reduction needs contiguous rows of A, and those of a "
            "transposed A are not, even packed; drop the step split"
        )
    if is_split or nest.group:
        return
    if tile.cols == 1 < nest.dim(nest.col).extent:
        raise LoweringError(
            f"{nest.problem}: a register tile of {tile.rows}x1 leaves nothing to vectorise; "
            "give more cols"
        )
    if tile.rows == 1 and shape.transposes_rows:
        raise LoweringError(
            f"{nest.problem}: one row of a transposed A would be multiplied element by element; "
            "give more rows"
        )


def _as_it_stands(_writer: Writer, handle: str) -> str:
    return handle


def _products(shape: Form, opening: Opening = _as_it_stands) -> tuple[str, list[str]]:
    """The main sequence of a product of matrices or a convolution, and those it includes."""
    writer = Writer()
    handle = opening(writer, "%contraction")
    loops = LoopEmitter(shape, (handle, "%epilogue" if shape.has_epilogue else None), writer)
    loops.run()
    emitter = InnerProductEmitter if shape.nest.compute.lanes > 1 else KernelEmitter
    kernel = emitter(shape, loops.pieces, writer, loops.epilogue is not None)
    kernel.reduce()
    loops.packs.vectorize_copies()
    kernel.vectorize(loops.fill_follows)
    shared = [
        cleanup(),
        *loops.packs.sequences(),
        drop_unit_dims(),
        *kernel.contraction_matchers(),
        *kernel.epilogue_matchers(),
        *kernel.sequences(),
        bufferize("C in place, one scratch buffer per pack.", folds_aliases=True),
        lower_vectors(),
        *([fuse_products()] if kernel.multiplies_apart else []),
    ]
    return _main(shape, writer.lines, kernel.multiplies_apart), shared


def _windows(shape: Form) -> tuple[str, list[str]]:
    """The main sequence of a convolution of few channels in a group, and those it includes."""
    loops = WindowEmitter.of(padding_of_blocks(shape), axes(shape.nest.problem))
    apart = shape.body[0] == "arith.mulf"
    shared = [
        cleanup(),
        drop_unit_dims(),
        *loops.tiles.matchers(),
        hoist_accumulators(shape.widens),
        bufferize("C in place, what is padded in scratch.", folds_aliases=True),
        *([named_sequence("spread_channels")] if shape.spreads_channels else []),
        *([named_sequence("split_lines")] if shape.splits_lines else []),
        lower_vectors(),
        *([fuse_products()] if apart else []),
    ]
    return _main(shape, loops.writer.lines, apart), shared


def _assembled(
    schedule: Schedule, nest: Nest, loop_lines: Sequence[str], main: str, shared: list[str]
) -> str:
    """The whole module, with its header."""
    body = "\n".join([main, *shared])
    header = _header(nest.problem, schedule, loop_lines)
    return f"{header}{MODULE}\n{textwrap.indent(body, '  ')}}}\n"


def _header(problem: Problem, schedule: Schedule, loop_lines: Sequence[str]) -> str:
    lines = [
        f"problem:  {problem.canonical}",
        f"schedule: {schedule.hash}",
        *(f"note:     {note}" for note in notes(problem)),
    ]
    loops = [*loop_lines, ""] if loop_lines else []
    return (
        "".join(f"// {line}\n" for line in lines)
        + HEADER_END
        + "".join(f"// {line}".rstrip() + "\n" for line in (*loops, *map(str, schedule.steps), ""))
    )


_SPREAD = f"  transform.include @spread_channels failures(propagate) (%buffers) : ({ANY}) -> ()"
_SPLIT = f"  transform.include @split_lines failures(propagate) (%buffers) : ({ANY}) -> ()"
_FUSE = f"  transform.include @fuse_products failures(propagate) (%buffers) : ({ANY}) -> ()"
_RESULT = f"  %result = transform.get_consumers_of_result %contraction[0] : ({ANY}) -> {ANY}"
_EPILOGUE = f"  %epilogue = transform.get_consumers_of_result %contraction[0] : ({ANY}) -> {ANY}"


def _main(form: Form, lines: list[str], multiplies_apart: bool) -> str:
    whole = [
        f"transform.named_sequence @__transform_main(%root: {ANY} {{transform.consumed}}) {{",
        f'  %func = transform.structured.match ops{{["func.func"]}} in %root : ({ANY}) -> {ANY}',
        f"  %contraction = {_match(form.op)} in %root : ({ANY}) -> {ANY}",
        *([_RESULT] if form.nest.group else [_EPILOGUE] if form.has_epilogue else []),
        *(f"  {line}" for line in lines),
        "  // buffers, and vectors that the machine has",
        f"  %buffers = transform.include @bufferize failures(propagate) (%root) : ({ANY}) -> {ANY}",
        *([_SPREAD] if form.spreads_channels else []),
        *([_SPLIT] if form.splits_lines else []),
        f"  transform.include @lower_vectors failures(propagate) (%buffers) : ({ANY}) -> ()",
        *([_FUSE] if multiplies_apart else []),
        "  transform.yield",
        "}",
        "",
    ]
    return "\n".join(whole)


def _match(op: str) -> str:
    """What finds the contraction: its name or, where it has none of its own, its body."""
    if op == "linalg.generic":
        return "transform.collect_matching @contraction"
    return f'transform.structured.match ops{{["{op}"]}}'
