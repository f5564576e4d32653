"""Points that mean fewer products, by minimal filtering or Strassen, beside the direct method's.

A workload that has such a method has two parameters more: `algorithm` and, of its tiles, `tiles`.
Register tile, unroll factor, columns and division among threads are those of the direct method;
the parameters that say how the direct method packs and cuts have no effect.
"""

from collections.abc import Sequence
from math import prod

from kernels.problem import Conv2d
from kernels.schedule import (
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Step,
    Strassen,
    Unroll,
    Winograd,
)
from kernels.schedule.legality import part_size
from kernels.schedule.transformed import transformed_space
from kernels.schedule.winograd import POINT, TILES, taps_of, why_not_winograd, winograd_space
from kernels.target.cores import is_golden_cove_server
from search.space.division import block_steps
from search.space.methods.strassen import levels_of
from search.space.parameters import Choice, Parameter, Size
from search.space.points import WHOLE, Point, Value
from search.space.tiles import tile_shape
from search.space.workload import Workload

DIRECT, ALGORITHM, WANTED = "direct", "algorithm", "tiles"
LEAST_CHANNELS = {
    (3, 3): {2: 1, 4: 8},
    (5, 5): {2: 8, 3: 16},
    (1, 3): {4: 16, 6: 96},
    (1, 5): {4: 8},
    (1, 7): {2: 16},
    (3, 5): {2: 8, 3: 8},
    (3, 7): {2: 8},
    (5, 7): {2: 32},
}
"""The outputs of tiles that pay, and the least input channels that each is offered for.

By the filter's sides, the shorter one first. Rounding in the transforms is the same for any depth,
and that of the direct method grows with it: F(4x4,3x3) is beyond what `accuracy=standard` allows
from 4 channels down, and F(3x3,5x5) from 8 down where nothing fuses multiply and add. F(4) of three
taps costs more than it saves from 8 channels down.
"""
LEAST_CHANNELS_OF_STRIDED = {(3, 3): {2: 16, 3: 16}, (5, 5): {2: 16}}
"""The same of filters of stride 2, whose transforms round less than direct sums at any depth."""

EFFECTIVE = ("tile", "unroll", "cols", "rows", "prefetch", WANTED)
"""The parameters, beside the division among threads, that a tile's schedule depends on."""

TIMES_L2, TIMES_L2_OF_GOLDEN_COVE = 4, 0.75
"""Of the second cache, a filter beyond which tiles wait for it where it is not fetched ahead.

On Zen 5, with 1 MiB, 28x28x128 (2.4 MB) lost 1% by fetching it, and 14x14x256 (9.4 MB) won 33%. On
Emerald Rapids, with 2 MiB, 28x28x128 wins 8%, 28x28x112 (1.8 MB) 7%, and 56x56x96 (1.3 MB) nothing.
"""
WANTED_TILES = (8, 12, 16, 24, 32, 48, 64, 96, 128)
_FILTERED, _QUARTERED = "winograd", "strassen"


def outputs_of(workload: Workload) -> tuple[int, ...]:
    """The outputs of tiles that a workload is offered; none where it is computed directly."""
    problem = workload.problem
    if why_not_winograd(problem) is not None:
        return ()
    assert isinstance(problem, Conv2d)
    least_channels = LEAST_CHANNELS if problem.stride == 1 else LEAST_CHANNELS_OF_STRIDED
    offered = least_channels.get((min(taps_of(problem)), max(taps_of(problem))), {})
    return tuple(output for output, least in offered.items() if problem.ci >= least)


def filtering_parameters(workload: Workload) -> tuple[Parameter, ...]:
    """What a point says beside the parameters of the direct method."""
    steps = steps_of(workload)
    if not steps:
        return ()
    most = max(transformed_space(workload.problem, step).extent(TILES) for step in steps)
    wanted = tuple(size for size in WANTED_TILES if size < most)
    names = tuple(
        f"{_QUARTERED}{step.levels}" if isinstance(step, Strassen) else f"{_FILTERED}{step.output}"
        for step in steps
    )
    return Choice(ALGORITHM, (DIRECT, *names)), Size(WANTED, (*wanted, WHOLE), most)


def streams_filter(workload: Workload) -> bool:
    """Whether B is transformed to so large panels that products wait for them."""
    if levels_of(workload):
        return True
    outputs = outputs_of(workload)
    if not outputs or not workload.problem.has_constant_weights:
        return False
    points = winograd_space(workload.problem, max(outputs)).extent(POINT)
    channels = workload.stored["A" if workload.dims.image == "B" else "B"].total
    taps = prod(taps_of(workload.problem))
    is_far = is_golden_cove_server(workload.target.cpu)
    times = TIMES_L2_OF_GOLDEN_COVE if is_far else TIMES_L2
    return points * channels // taps > times * workload.target.l2_bytes


def steps_of(workload: Workload) -> tuple[Winograd | Strassen, ...]:
    """The steps that make other methods than the direct one of a workload's schedule."""
    filtered = map(Winograd, outputs_of(workload))
    return (*filtered, *map(Strassen, levels_of(workload)))


def step_of(point: Point) -> Winograd | Strassen | None:
    """The step that makes the method of a point; None for the direct one."""
    name = str(point.get(ALGORITHM, DIRECT))
    if name == DIRECT:
        return None
    if name.startswith(_QUARTERED):
        return Strassen(int(name.removeprefix(_QUARTERED)))
    return Winograd(int(name.removeprefix(_FILTERED)))


def nearest_algorithm(names: Sequence[Value], wanted: Value) -> Value:
    """What another problem's algorithm is here: itself, else the one with tiles most like its own.

    Of two as near, that with the larger tiles; the direct method where there is none of its kind.
    """
    own = step_of({ALGORITHM: wanted})
    alike = [name for name in names if type(step_of({ALGORITHM: name})) is type(own)]
    if own is None or not alike:
        return DIRECT

    def far(name: Value) -> tuple[int, int]:
        here = _size(step_of({ALGORITHM: name}))
        return abs(here - _size(own)), -here

    return min(alike, key=far)


def _size(step: Winograd | Strassen | None) -> int:
    """Outputs of a tile, or levels."""
    assert step is not None
    return step.output if isinstance(step, Winograd) else step.levels


def channels_of(workload: Workload) -> str:
    """The parameter that says in what blocks of output channels the direct method works."""
    return "rows" if workload.dims.image == "B" else "cols"


def filtered_schedule(workload: Workload, point: Point, method: Winograd | Strassen) -> Schedule:
    """The schedule of a point whose operands a step transforms."""
    shape = tile_shape(point["tile"])
    register = Register(shape.rows, shape.cols(workload.lanes), "cols")
    col = transformed_space(workload.problem, method).col
    extents, divided = filtered_part(workload, point, method, register)
    steps: list[Step] = [method, *divided]
    steps += block_steps(col, extents, int(point[channels_of(workload)]), register.cols)
    steps.append(Pack("B"))
    if point.get("prefetch") and streams_filter(workload):
        steps.append(Prefetch("B"))
    steps += block_steps(TILES, extents, int(point[WANTED]), register.rows)
    steps += [Pack("A"), register]
    if int(point["unroll"]) > 1:
        steps.append(Unroll(int(point["unroll"])))
    return Schedule(tuple(steps))


def filtered_part(
    workload: Workload, point: Point, method: Winograd | Strassen, register: Register
) -> tuple[dict[str, int], list[Parallel]]:
    """The extents of one thread's part, and the steps that divide the whole.

    What divides images, lines or pixels of the direct method divides tiles.
    """
    space = transformed_space(workload.problem, method)
    extents, col = dict(space.extents), space.col
    wanted = {TILES: 1, col: 1}
    for part in str(point.get("parallel", "none")).split(","):
        dim, _, parts = part.partition("=")
        if parts:
            wanted[col if dim == col else TILES] *= int(parts)
    steps = []
    for dim, unit in ((TILES, register.rows), (col, register.cols)):
        parts_of_dim = min(wanted[dim], -(-extents[dim] // unit))
        if parts_of_dim > 1:
            steps.append(Parallel(dim, parts_of_dim))
            extents[dim] = part_size(extents[dim], parts_of_dim, unit)
    return extents, steps
