"""Points that mean a convolution by minimal filtering, beside those of the direct method.

A workload that can be filtered has two parameters more: `algorithm` and, of its tiles, `tiles`.
Register tile, unroll factor, columns and division among threads are those of the direct method;
the parameters that say how the direct method packs and cuts have no effect.
"""

from collections.abc import Sequence
from math import prod

from kernels.problem import Conv2d
from kernels.schedule import Pack, Parallel, Prefetch, Register, Schedule, Step, Unroll, Winograd
from kernels.schedule.legality import part_size
from kernels.schedule.winograd import POINT, TILES, taps_of, why_not_winograd, winograd_space
from kernels.target.cores import is_golden_cove_server
from search.space.division import block_steps
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
_COL = "co"


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
    outputs = outputs_of(workload)
    if not outputs:
        return ()
    most = winograd_space(workload.problem, min(outputs)).extent(TILES)
    wanted = tuple(size for size in WANTED_TILES if size < most)
    names = tuple(f"winograd{output}" for output in outputs)
    return Choice(ALGORITHM, (DIRECT, *names)), Size(WANTED, (*wanted, WHOLE), most)


def streams_filter(workload: Workload) -> bool:
    """Whether a filter that is transformed ahead is so large that tiles wait for it."""
    outputs = outputs_of(workload)
    if not outputs or not workload.problem.has_constant_weights:
        return False
    points = winograd_space(workload.problem, max(outputs)).extent(POINT)
    channels = workload.stored["A" if workload.dims.image == "B" else "B"].total
    taps = prod(taps_of(workload.problem))
    is_far = is_golden_cove_server(workload.target.cpu)
    times = TIMES_L2_OF_GOLDEN_COVE if is_far else TIMES_L2
    return points * channels // taps > times * workload.target.l2_bytes


def output_of(point: Point) -> int | None:
    """The outputs, along the filter, of the tiles of a point; None for the direct method."""
    name = str(point.get(ALGORITHM, DIRECT))
    return None if name == DIRECT else int(name.removeprefix("winograd"))


def nearest_algorithm(names: Sequence[Value], wanted: Value) -> Value:
    """What another problem's algorithm is here: itself, else the one with tiles most like its own.

    Of two as near, that with the larger tiles; the direct method where there are no tiles.
    """
    filtered = [name for name in names if name != DIRECT]
    if wanted == DIRECT or not filtered:
        return DIRECT
    output = output_of({ALGORITHM: wanted})

    def far(name: Value) -> tuple[int, int]:
        here = output_of({ALGORITHM: name})
        assert here is not None and output is not None
        return abs(here - output), -here

    return min(filtered, key=far)


def channels_of(workload: Workload) -> str:
    """The parameter that says in what blocks of output channels the direct method works."""
    return "cols" if workload.dims.col == _COL else "rows"


def filtered_schedule(workload: Workload, point: Point, output: int) -> Schedule:
    """The schedule of a point whose tiles have `output` pixels along the filter."""
    shape = tile_shape(point["tile"])
    register = Register(shape.rows, shape.cols(workload.lanes), "cols")
    extents, divided = filtered_part(workload, point, output, register)
    steps: list[Step] = [Winograd(output), *divided]
    steps += block_steps(_COL, extents, int(point[channels_of(workload)]), register.cols)
    steps.append(Pack("B"))
    if point.get("prefetch") and streams_filter(workload):
        steps.append(Prefetch("B"))
    steps += block_steps(TILES, extents, int(point[WANTED]), register.rows)
    steps += [Pack("A"), register]
    if int(point["unroll"]) > 1:
        steps.append(Unroll(int(point["unroll"])))
    return Schedule(tuple(steps))


def filtered_part(
    workload: Workload, point: Point, output: int, register: Register
) -> tuple[dict[str, int], list[Parallel]]:
    """The extents of one thread's part, and the steps that divide the whole.

    What divides images, lines or pixels of the direct method divides tiles.
    """
    extents = dict(winograd_space(workload.problem, output).extents)
    wanted = {TILES: 1, _COL: 1}
    for part in str(point.get("parallel", "none")).split(","):
        dim, _, parts = part.partition("=")
        if parts:
            wanted[_COL if dim == _COL else TILES] *= int(parts)
    steps = []
    for dim, unit in ((TILES, register.rows), (_COL, register.cols)):
        parts_of_dim = min(wanted[dim], -(-extents[dim] // unit))
        if parts_of_dim > 1:
            steps.append(Parallel(dim, parts_of_dim))
            extents[dim] = part_size(extents[dim], parts_of_dim, unit)
    return extents, steps
