"""What the step `winograd` makes of a convolution, and where it can stand."""

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.minimal_filtering import (
    SIDES,
    STRIDES,
    TileFiltering,
    outputs_for,
    tile_filtering,
)
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import IterationSpace
from tilewise.kernels.problem.model import Conv2d
from tilewise.kernels.schedule.fewer_products import ELEMENTS, POINT, TILES
from tilewise.kernels.schedule.steps.algorithms import Winograd


def winograd_space(problem: Problem, output: int) -> IterationSpace:
    """Tiles by output channels by input channels, a product for each point.

    Raises:
        ScheduleError: the problem has no tiles of `output` pixels along its filter.
    """
    why = why_not_winograd(problem)
    if why is None and output not in (outputs := outputs_of(problem)):
        of_filter = "of a {}x{} filter".format(*taps_of(problem))
        why = f"output {of_filter} is one of {', '.join(map(str, outputs))}"
    if why is not None:
        raise ScheduleError(f"step '{Winograd(output)}' cannot be applied to {problem}: {why}")
    assert isinstance(problem, Conv2d)
    filtering = filtering_of(problem, output)
    down, across = tiles_of(problem, filtering.output)
    return IterationSpace(
        extents=(
            (POINT, filtering.products),
            (TILES, problem.n * down * across),
            ("co", problem.co),
            ("ci", problem.ci),
        ),
        row_dims=(TILES,),
        col="co",
        stream="ci",
        taps=1,
        lead=(POINT,),
        image="A",
        tile=filtering.output,
    )


def tiles_of(problem: Conv2d, output: tuple[int, int]) -> tuple[int, int]:
    """Tiles of so many pixels that cover one image's result, down and across."""
    height, width = output
    return -(-problem.oh // height), -(-problem.ow // width)


def taps_of(problem: Problem) -> tuple[int, int]:
    """Taps of the filter, down and across; of a matmul, that of a single pixel."""
    return (problem.kh, problem.kw) if isinstance(problem, Conv2d) else (1, 1)


def outputs_of(problem: Problem) -> tuple[int, ...]:
    """The outputs, along the filter, that a convolution's filter and stride have tiles of."""
    return outputs_for(taps_of(problem), problem.stride if isinstance(problem, Conv2d) else 1)


def filtering_of(problem: Conv2d, output: int) -> TileFiltering:
    """The transforms of tiles of so many outputs; KeyError where `outputs_of` has them not."""
    return tile_filtering(output, taps_of(problem), problem.stride)


def why_not_winograd(problem: Problem) -> str | None:
    """Why no tile of a problem can be computed by minimal filtering; None where it can."""
    if not isinstance(problem, Conv2d):
        return "it is no convolution"
    if problem.is_strict:
        return "accuracy=strict asks for the direct method"
    if not outputs_for(taps_of(problem)):
        sides = ", ".join(map(str, SIDES))
        return (
            f"the filter is {problem.kh}x{problem.kw}; tiles are for sides of {sides}, "
            "one of which may be 1, and not for 7x7"
        )
    for name in ("dilation", "groups"):
        if getattr(problem, name) != 1:
            return f"{name}={getattr(problem, name)} is not 1"
    if problem.stride not in STRIDES:
        return f"stride={problem.stride} is not one of {', '.join(map(str, STRIDES))}"
    if not outputs_of(problem):
        sides = f"{problem.kh}x{problem.kw}"
        return f"a {sides} filter with stride={problem.stride} has no tiles; a 3x3 filter has"
    if problem.element.name not in ELEMENTS:
        return f"dtype={problem.element.name} is not one of {', '.join(ELEMENTS)}"
    return None
