"""What the step `winograd` makes of a convolution, and where it can stand."""

from kernels.errors import ScheduleError
from kernels.minimal_filtering import POINTS, TAPS, minimal_filtering
from kernels.problem.base import Problem
from kernels.problem.iteration import IterationSpace, iteration_space
from kernels.problem.model import Conv2d
from kernels.schedule.model import Schedule
from kernels.schedule.steps.algorithms import Winograd
from kernels.schedule.steps.base import Step
from kernels.schedule.steps.copies import Pack
from kernels.schedule.steps.loops import Parallel, Tile
from kernels.schedule.steps.register import Register, Unroll

TILES, POINT = "t", "point"
ELEMENTS = ("f32", "f64")


def scheduled_space(problem: Problem, schedule: Schedule) -> IterationSpace:
    """The dims that the steps of a schedule speak of.

    Raises:
        ScheduleError: a step changes them, and cannot do so for the problem.
    """
    if schedule.winograd is None:
        return iteration_space(problem)
    return winograd_space(problem, schedule.winograd)


def winograd_space(problem: Problem, output: int) -> IterationSpace:
    """Tiles by output channels by input channels, a product for each point.

    Raises:
        ScheduleError: the problem has no tiles of `output` x `output`.
    """
    why = why_not_winograd(problem)
    if why is None and output not in POINTS:
        why = f"output is one of {', '.join(map(str, POINTS))}"
    if why is not None:
        raise ScheduleError(f"step '{Winograd(output)}' cannot be applied to {problem}: {why}")
    assert isinstance(problem, Conv2d)
    down, across = tiles_of(problem, output)
    return IterationSpace(
        extents=(
            (POINT, minimal_filtering(output).input ** 2),
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
    )


def tiles_of(problem: Conv2d, output: int) -> tuple[int, int]:
    """Tiles that cover one image's result, down and across."""
    return -(-problem.oh // output), -(-problem.ow // output)


def why_not_winograd(problem: Problem) -> str | None:
    """Why no tile of a problem can be computed by minimal filtering; None where it can."""
    if not isinstance(problem, Conv2d):
        return "it is no convolution"
    if problem.is_strict:
        return "accuracy=strict asks for the direct method"
    if (problem.kh, problem.kw) != (TAPS, TAPS):
        return f"the filter is {problem.kh}x{problem.kw}, not 3x3"
    for name in ("stride", "dilation", "groups"):
        if getattr(problem, name) != 1:
            return f"{name}={getattr(problem, name)} is not 1"
    if problem.element.name not in ELEMENTS:
        return f"dtype={problem.element.name} is not one of {', '.join(ELEMENTS)}"
    return None


def check_order(problem: Problem, schedule: Schedule) -> None:
    """Raise unless the steps are those of the docstring of `Winograd`, in that order."""
    expected: list[tuple[str, type[Step], dict[str, object], bool]] = [
        ("winograd", Winograd, {}, True),
        ("parallel dim=t", Parallel, {"dim": TILES}, False),
        ("parallel dim=co", Parallel, {"dim": "co"}, False),
        ("tile dim=co", Tile, {"dim": "co"}, False),
        ("pack operand=B", Pack, {"operand": "B"}, True),
        ("tile dim=t", Tile, {"dim": TILES}, False),
        ("pack operand=A", Pack, {"operand": "A"}, True),
        ("register outer=cols", Register, {"outer": "cols"}, True),
        ("unroll", Unroll, {}, False),
    ]
    left = list(schedule.steps)
    for said, kind, values, is_needed in expected:
        if left and isinstance(left[0], kind) and values.items() <= vars(left[0]).items():
            left.pop(0)
        elif is_needed:
            found = f"step '{left[0]}' stands there" if left else "nothing does"
            raise ScheduleError(
                f"{problem}: with winograd the step {said} is expected, and {found}; "
                f"the order is {', '.join(name for name, *_ in expected)}"
            )
    if left:
        raise ScheduleError(
            f"{problem}: step '{left[0]}' has no place beside winograd; "
            f"the order is {', '.join(name for name, *_ in expected)}"
        )
