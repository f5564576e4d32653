"""`emit_script`: a schedule as a transform script for real MLIR."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tilewise.kernels.errors import LoweringError, UnsupportedError
from tilewise.kernels.mlir.cpu.borders import axes
from tilewise.kernels.mlir.cpu.grouped_conv import GroupedConvEmitter, padding_of_blocks
from tilewise.kernels.mlir.cpu.loops import LoopEmitter
from tilewise.kernels.mlir.cpu.register_tile import InnerProductEmitter, KernelEmitter
from tilewise.kernels.mlir.payload.contraction import gathers_patches
from tilewise.kernels.mlir.payload.factors import factor_type
from tilewise.kernels.mlir.payload.form import LinalgForm, form
from tilewise.kernels.mlir.payload.images import splits_lines
from tilewise.kernels.mlir.transform.module import module_of
from tilewise.kernels.mlir.transform.sequences import bufferize, hoist_accumulators, named_sequence
from tilewise.kernels.mlir.transform.writer import SequenceWriter
from tilewise.kernels.nest import Nest, nest_of, printed
from tilewise.kernels.problem import Problem
from tilewise.kernels.problem.keys import BF16X3
from tilewise.kernels.schedule import Schedule, loop_nest

Opening = Callable[[SequenceWriter, str], str]

_NO_TILES = "and iree-opt has no operations on matrix tiles (x86.amx)"
_WIDENED = {
    "bf16": "bf16 is widened to f32: MLIR's transform dialect reaches no bf16 dot product, "
    f"{_NO_TILES}",
    "f16": f"f16 is widened to f32 and multiplied there, {_NO_TILES}",
    "i8": "i8 is widened to i32: MLIR's transform dialect reaches no dot product (VNNI), "
    f"{_NO_TILES}",
    "i16": "both factors are widened to i16, less zero points, in a pass of their own, and to i32 "
    "where they are multiplied: linalg.quantized_matmul has no unsigned bytes, and MLIR's "
    f"transform dialect reaches no dot product (VNNI), {_NO_TILES}",
}


def notes(problem: Problem) -> tuple[str, ...]:
    """Return what scripts of `problem` cannot do, or do otherwise than the native kernel."""
    found = []
    factor = factor_type(problem).name
    if factor in _WIDENED:
        found.append(_WIDENED[factor])
    if problem.accuracy == BF16X3:
        found.append(f"factors are multiplied in f32: no script splits them, {_NO_TILES}")
    if problem.quantised_weights:
        found.append(
            "quantised weights become f32 in memory before the product: MLIR's transform dialect "
            "reaches no dot product that takes them as they are"
        )
    if problem.has_constant_weights:
        found.append(
            "constant weights are an ordinary argument: where the schedule packs them, "
            "every run does, and the speed includes it"
        )
    if problem.transpose_a:
        found.append("pack A copies blocks of the transposed A as they lie, [depth, rows]")
    nest = nest_of(problem)
    if nest.group:
        found += _group_notes(problem, nest)
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


def _group_notes(problem: Problem, nest: Nest) -> list[str]:
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
    elif problem.is_padded and problem.has_channels_first:
        found.append(
            "planes are copied with their padding where vectors reach past a line: no transform "
            "shifts a vector along a line, so scripts copy what the native kernel reads in place"
        )
    if not problem.has_channels_first and has_several:
        copied = ", which are copied with their padding" if problem.is_padded else ""
        found.append(
            "an op of the payload spreads each group's channels over lanes, pixel by pixel of a "
            f"register tile{copied}: no transform orders lanes by groups"
        )
    return found


def emit_script(problem: Problem, schedule: Schedule) -> str:
    """Return the transform module that makes the schedule's loop nest of the problem's payload.

    Raises:
        UnsupportedError: no script covers a step of the schedule.
        ScheduleError: the schedule cannot be applied to the problem.
        LoweringError: its blocks cannot be made static.
    """
    shape = checked_form(problem, schedule)
    sequences = _windows(shape) if shape.nest.group else _products(shape)
    nest = loop_nest(problem, schedule)
    return _assembled(schedule, nest, printed(nest), sequences)


def checked_form(problem: Problem, schedule: Schedule) -> LinalgForm:
    """Return the form of a schedule's nest; raise as `emit_script` where no script covers it."""
    nest = loop_nest(problem, schedule)
    if nest.algorithm is not None:
        raise UnsupportedError(
            f"{problem}: the step {nest.algorithm.name} has no script: upstream has no operation "
            "that transforms blocks while it packs them",
            "steps",
        )
    if nest.problem != problem:
        raise UnsupportedError(
            f"{problem}: the step fuse has no script: upstream has no transform that fuses loops "
            "of a convolution",
            "steps",
        )
    shape = form(nest)
    _check_vectors(shape)
    return shape


def emit_on(
    schedule: Schedule,
    shape: LinalgForm,
    opening: Opening,
    shared: Sequence[str] = (),
    loop_lines: Sequence[str] = (),
) -> str:
    """Return the transform module that makes the loops of an op in another form.

    Args:
        schedule: of the op's problem, for the header.
        shape: the op after `opening`, and its loops; no convolution with `nest.group`.
        opening: writes what brings the op behind a handle into that form, and returns a handle.
        shared: named sequences that `opening` includes.
        loop_lines: the header's lines on the loops.

    Raises:
        LoweringError: blocks cannot be made static, or vectors would not be contiguous.
    """
    _check_vectors(shape)
    return _assembled(schedule, shape.nest, loop_lines, [*_products(shape, opening), *shared])


def _check_vectors(shape: LinalgForm) -> None:
    """Raise LoweringError if the elements of a vector would not be contiguous."""
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


def _products(shape: LinalgForm, opening: Opening = lambda _, handle: handle) -> list[str]:
    """Return the sequences of a matmul or a convolution, the main one first."""
    found = loops_of(shape, opening)
    return [_main(shape, found.lines, found.multiplies_apart), *found.sequences]


@dataclass(frozen=True)
class Loops:
    """What transforms a contraction: lines, the sequences that they include, and a need of others.

    `multiplies_apart` says whether products and sums are fused after vectors are lowered.
    """

    lines: list[str]
    sequences: list[str]
    multiplies_apart: bool


def loops_of(shape: LinalgForm, opening: Opening = lambda _, handle: handle) -> Loops:
    """Return what makes the loops of a matmul or a convolution."""
    writer = SequenceWriter()
    loops = LoopEmitter(shape, opening(writer, "%contraction"), writer)
    loops.run()
    emitter = InnerProductEmitter if shape.nest.compute.lanes > 1 else KernelEmitter
    kernel = emitter(shape, loops.pieces, writer, loops.epilogue is not None)
    kernel.reduce()
    loops.packs.vectorize_copies()
    kernel.vectorize(loops.fill_follows)
    sequences = [
        named_sequence("cleanup"),
        *loops.packs.sequences(),
        named_sequence("drop_unit_dims"),
        *kernel.matchers(),
        *kernel.sequences(),
        bufferize("C in place, one scratch buffer per pack.", folds_aliases=True),
        named_sequence("lower_vectors"),
        *([named_sequence("fuse_products")] if kernel.multiplies_apart else []),
    ]
    return Loops(writer.lines, sequences, kernel.multiplies_apart)


def _windows(shape: LinalgForm) -> list[str]:
    """Return the sequences of a convolution of few channels in a group, the main one first."""
    loops = GroupedConvEmitter.of(padding_of_blocks(shape), axes(shape.nest.problem))
    apart = shape.body[0] == "arith.mulf"
    return [
        _main(shape, loops.writer.lines, apart),
        named_sequence("cleanup"),
        named_sequence("drop_unit_dims"),
        *loops.tiles.matchers(),
        hoist_accumulators(shape.widens),
        bufferize("C in place, what is padded in scratch.", folds_aliases=True),
        *map(named_sequence, _image_sequences(shape)),
        named_sequence("lower_vectors"),
        *([named_sequence("fuse_products")] if apart else []),
    ]


def _image_sequences(form: LinalgForm) -> list[str]:
    """Return the sequences that order an image's pixels or channels in registers."""
    sequences = {"spread_channels": form.spreads_channels, "split_lines": form.splits_lines}
    return [name for name, is_needed in sequences.items() if is_needed]


def _assembled(
    schedule: Schedule, nest: Nest, loop_lines: Iterable[str], sequences: list[str]
) -> str:
    """Return the whole module, with its header."""
    facts = (
        f"problem:  {nest.problem.canonical}",
        f"schedule: {schedule.hash}",
        *(f"note:     {note}" for note in notes(nest.problem)),
    )
    loops = list(loop_lines)
    return module_of(
        facts, [*loops, *([""] if loops else []), *map(str, schedule.steps)], sequences
    )


def _main(form: LinalgForm, lines: list[str], multiplies_apart: bool) -> str:
    w = SequenceWriter()
    w.handle("func", 'structured.match ops{["func.func"]} in %root')
    write_loops(w, form, lines, "%root")
    w.line("// buffers, and vectors that the machine has")
    w.handle("buffers", "include @bufferize failures(propagate) (%root)")
    fuses = ["fuse_products"] if multiplies_apart else []
    for name in (*_image_sequences(form), "lower_vectors", *fuses):
        w.include(name, "%buffers")
    return w.main()


def write_loops(w: SequenceWriter, form: LinalgForm, lines: list[str], where: str) -> None:
    """Write handles on the ops in `where`, and the lines that transform them."""
    named = f'structured.match ops{{["{form.op}"]}}'
    has_name = form.op != "linalg.generic"
    w.handle("contraction", f"{named if has_name else 'collect_matching @contraction'} in {where}")
    if form.nest.group or form.has_epilogue:
        name = "result" if form.nest.group else "epilogue"
        w.handle(name, "get_consumers_of_result %contraction[0]")
    w.lines += lines
