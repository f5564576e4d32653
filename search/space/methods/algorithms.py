"""Points that mean fewer products, by minimal filtering or Strassen, beside the direct method's.

A workload that has such a method has two parameters more: `algorithm` and, of its tiles, `tiles`.
Register tile, unroll factor, columns and division among threads are those of the direct method;
the parameters that say how the direct method packs and cuts have no effect.
"""

from collections.abc import Sequence

from tilewise.kernels.schedule import (
    Nontemporal,
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Step,
    Strassen,
    Unroll,
    Winograd,
    begin,
)
from tilewise.kernels.steps.parallel import part_size
from tilewise.kernels.steps.transformed import TILES
from tilewise.search.space.division import block_steps
from tilewise.search.space.methods.strassen import levels_of
from tilewise.search.space.methods.winograd import has_far_result, has_large_filter, outputs_of
from tilewise.search.space.parameters import Choice, Parameter, Size
from tilewise.search.space.points import WHOLE, Point, Value
from tilewise.search.space.tiles import MIN_CHAINS
from tilewise.search.space.workload import Workload

DIRECT, ALGORITHM, WANTED = "direct", "algorithm", "tiles"
PAST_CACHES = "nontemporal"
EFFECTIVE = ("tile", "unroll", "cols", "rows", "prefetch", WANTED, PAST_CACHES)
"""The parameters, beside the division among threads, that a tile's schedule depends on."""

WANTED_TILES = (8, 12, 16, 24, 32, 48, 64, 96, 128)
_FILTERED, _BY_QUADRANTS = "winograd", "strassen"


def method_parameters(workload: Workload) -> tuple[Parameter, ...]:
    """What a point says beside the parameters of the direct method."""
    steps = steps_of(workload)
    if not steps:
        return ()
    most = max(begin(workload.problem, step).dim(TILES).extent for step in steps)
    wanted = tuple(size for size in WANTED_TILES if size < most)
    names = tuple(
        f"{_BY_QUADRANTS}{step.levels}"
        if isinstance(step, Strassen)
        else f"{_FILTERED}{step.output}"
        for step in steps
    )
    chosen = (Choice(ALGORITHM, (DIRECT, *names)), Size(WANTED, (*wanted, WHOLE), most))
    return (*chosen, Choice(PAST_CACHES, (False, True))) if has_far_result(workload) else chosen


def fetches_panels(workload: Workload) -> bool:
    """Whether B is transformed to so large panels that products wait for them."""
    return bool(levels_of(workload)) or has_large_filter(workload)


def tall_tiles(workload: Workload) -> tuple[tuple[int, int], ...]:
    """(rows, vectors) of tiles of one vector by all transformed rows that there are, if few.

    Its sums, a vector of B and an element of A take all registers. It reads each panel once, and so
    pays where the last cache is far: on Emerald Rapids 25x1 of 7x7x2048->512 by pairs of rows is at
    1.08 times the best direct schedule, 13x2, which reads panels twice, at 0.97, and two calls of
    25x1 for 100 rows at no more than 10x2. No trial elsewhere speaks for it.
    """
    if workload.target.core.far_l3 is None or not fetches_panels(workload):
        return ()
    most = workload.target.vector_registers - 2
    nests = (begin(workload.problem, step) for step in steps_of(workload))
    rows = sorted({nest.dim(TILES).extent for nest in nests})
    return tuple((tall, 1) for tall in rows if MIN_CHAINS <= tall <= most)


def steps_of(workload: Workload) -> tuple[Winograd | Strassen, ...]:
    """The steps that make other methods than the direct one of a workload's schedule."""
    filtered = map(Winograd, outputs_of(workload))
    return (*filtered, *map(Strassen, levels_of(workload)))


def step_of(point: Point) -> Winograd | Strassen | None:
    """The step that makes the method of a point; None for the direct one."""
    name = str(point.get(ALGORITHM, DIRECT))
    if name == DIRECT:
        return None
    if name.startswith(_BY_QUADRANTS):
        return Strassen(int(name.removeprefix(_BY_QUADRANTS)))
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


def transformed_schedule(workload: Workload, point: Point, method: Winograd | Strassen) -> Schedule:
    """The schedule of a point whose operands a step transforms."""
    tile = point["tile"]
    register = Register(tile.rows, tile.cols(workload.lanes), "cols")
    col = begin(workload.problem, method).col
    extents, divided = transformed_part(workload, point, method, register)
    steps: list[Step] = [method, *divided]
    steps += block_steps(col, extents, int(point[channels_of(workload)]), register.cols)
    steps.append(Pack("B"))
    if point.get("prefetch") and fetches_panels(workload):
        steps.append(Prefetch("B"))
    steps += block_steps(TILES, extents, int(point[WANTED]), register.rows)
    steps += [Pack("A"), register]
    if int(point["unroll"]) > 1:
        steps.append(Unroll(int(point["unroll"])))
    if point.get(PAST_CACHES):
        steps.append(Nontemporal())
    return Schedule(tuple(steps))


def transformed_part(
    workload: Workload, point: Point, method: Winograd | Strassen, register: Register
) -> tuple[dict[str, int], list[Parallel]]:
    """The extents of one thread's part, and the steps that divide the whole.

    What divides images, lines or pixels of the direct method divides tiles.
    """
    nest = begin(workload.problem, method)
    extents, col = dict(nest.extents), nest.col
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
