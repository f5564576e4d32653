"""What a script of a problem cannot do, or does otherwise than the native kernel."""

from kernels.problem import Conv2d, Problem
from kernels.problem.iteration import iteration_space

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
    space = iteration_space(problem)
    if isinstance(problem, Conv2d) and space.extent(space.col) == 1:
        found.append(
            "each group has one channel and so one column: the loops multiply scalars, "
            "no vector runs along the groups"
        )
    if space.patches:
        found.append(
            "the image's patches are gathered ahead, in a pass of their own; pack B copies them"
        )
    return tuple(found)
