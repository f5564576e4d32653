"""Points that mean fewer products, by Winograd transforms or Strassen, beside the direct method's.

A workload that has such a method has two parameters more: `algorithm` and, of its tiles, `tiles`.
Register tile, unroll factor, columns and division among threads are those of the direct method;
the parameters that say how the direct method packs and cuts have no effect.
"""

from collections.abc import Callable, Sequence

from tilewise.kernels.schedule import Strassen, Winograd, begin
from tilewise.kernels.steps.transformed import AlgorithmStep
from tilewise.search.space.methods.strassen import levels_of
from tilewise.search.space.methods.winograd import has_far_result, has_large_filter, outputs_of
from tilewise.search.space.parameters import Choice, Parameter, Size
from tilewise.search.space.points import Point, Value
from tilewise.search.space.workload import Workload

DIRECT, ALGORITHM, WANTED = "direct", "algorithm", "tiles"
PAST_CACHES = "nontemporal"
EFFECTIVE = ("tile", "unroll", "cols", "rows", "prefetch", WANTED, PAST_CACHES)
"""The parameters, beside the division among threads, that a tile's schedule depends on."""

WANTED_TILES = (8, 12, 16, 24, 32, 48, 64, 96, 128)

METHODS: dict[str, tuple[Callable[[int], AlgorithmStep], Callable[[Workload], tuple[int, ...]]]] = {
    Winograd.name: (Winograd, outputs_of),
    Strassen.name: (Strassen, levels_of),
}
"""What makes the step of a method from its size, and the sizes that a workload is offered."""


def method_parameters(workload: Workload) -> tuple[Parameter, ...]:
    """What a point says beside the parameters of the direct method."""
    steps = steps_of(workload)
    if not steps:
        return ()
    names = (f"{step.name}{step.size}" for step in steps)
    tiles = Size.below(WANTED, WANTED_TILES, max(rows_of_methods(workload)))
    chosen = (Choice(ALGORITHM, (DIRECT, *names)), tiles)
    return (*chosen, Choice(PAST_CACHES, (False, True))) if has_far_result(workload) else chosen


def fetches_panels(workload: Workload) -> bool:
    """Whether B is transformed to so large panels that products wait for them."""
    return bool(levels_of(workload)) or has_large_filter(workload)


def steps_of(workload: Workload) -> tuple[AlgorithmStep, ...]:
    """The steps that make other methods than the direct one of a workload's schedule."""
    return tuple(make(size) for make, sizes in METHODS.values() for size in sizes(workload))


def rows_of_methods(workload: Workload) -> list[int]:
    """The rows of each of these methods' products."""
    nests = (begin(workload.problem, step) for step in steps_of(workload))
    return [nest.extent(nest.row) for nest in nests]


def step_of(point: Point) -> AlgorithmStep | None:
    """The step that makes the method of a point; None for the direct one."""
    chosen = str(point.get(ALGORITHM, DIRECT))
    if chosen == DIRECT:
        return None
    name = chosen.rstrip("0123456789")
    make, _ = METHODS[name]
    return make(int(chosen.removeprefix(name)))


def nearest_algorithm(names: Sequence[Value], wanted: Value) -> Value:
    """What another problem's algorithm is here: itself, else the one with tiles most like its own.

    Of two as near, that with the larger tiles; the direct method where there is none of its kind.
    """
    own = step_of({ALGORITHM: wanted})
    alike = [name for name in names if type(step_of({ALGORITHM: name})) is type(own)]
    if own is None or not alike:
        return DIRECT

    def far(name: Value) -> tuple[int, int]:
        step = step_of({ALGORITHM: name})
        assert step is not None
        return abs(step.size - own.size), -step.size

    return min(alike, key=far)


def channels_of(workload: Workload) -> str:
    """The parameter that says in what blocks of output channels the direct method works."""
    return "rows" if workload.nest.image == "B" else "cols"
