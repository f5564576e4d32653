"""What a script of a problem cannot do, or does otherwise than the native kernel."""

from tilewise.kernels.mlir.payload.contraction import gathers_patches
from tilewise.kernels.mlir.payload.split_lines import splits_lines
from tilewise.kernels.nest import Nest, nest_of
from tilewise.kernels.problem import Problem

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
