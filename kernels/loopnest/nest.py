"""Steps into a loop nest. Both lowerings, the printer and the counts read it from here."""

from dataclasses import dataclass, replace
from itertools import product

from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import IterationSpace
from tilewise.kernels.problem.model import Conv2d
from tilewise.kernels.schedule.fewer_products import POINT
from tilewise.kernels.schedule.legality import check_legal, part_size, tile_unit
from tilewise.kernels.schedule.model import Schedule
from tilewise.kernels.schedule.steps.copies import Pack
from tilewise.kernels.schedule.steps.loops import Parallel, Stream, Tile
from tilewise.kernels.schedule.steps.register import Register
from tilewise.kernels.schedule.transformed import scheduled_space


@dataclass(frozen=True)
class Loop:
    """A loop over `dim` in steps of `step`.

    Attributes:
        kind: `parallel`, `tile` and `stream` come from steps, the trips of the first run at the
            same time; `micro` is over the micro-tiles of a block.
        trips: most iterations of one execution (a last block can have fewer).
    """

    dim: str
    step: int
    trips: int
    kind: str


@dataclass(frozen=True)
class Copy:
    """A pack of the current block of `operand`; `shape` is that of the largest block.

    One that `transforms` computes on the way. That of C comes behind all that lies in the loops
    around it, from the products of every point to C.

    B: [panels, taps, depth, cols of a panel], the last two exchanged where the reduction
    is split; A of a matmul: [rows, depth];
    A of an nhwc convolution: [image rows with halo, image columns with halo, depth].
    Transformed, B: [panels, points, depth, cols of a panel]; A: [points, tiles, depth];
    C: [points, tiles, cols of a panel].
    """

    operand: str
    shape: tuple[int, ...]
    transforms: bool = False


@dataclass(frozen=True)
class Kernel:
    """The micro-kernel: rows x cols of C over `depth` elements at each of `taps`.

    `lanes` is the partial sums that each element of C is summed in, side by side; `lines` the
    iterations of an outer loop that are jammed, each with the rows. One that `walks` has the
    loops over micro-tiles itself; `streams` is how many parts of the reduction `depth` comes from.
    """

    rows: int
    cols: int
    depth: int
    taps: int
    unroll: int
    lanes: int = 1
    lines: int = 1
    walks: bool = False
    streams: int = 1


Entry = Loop | Copy | Kernel


@dataclass(frozen=True)
class Nest:
    """The entries, outermost first; every entry lies inside all loops before it."""

    space: IterationSpace
    entries: tuple[Entry, ...]

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops, outermost first."""
        return tuple(e for e in self.entries if isinstance(e, Loop))

    @property
    def parts(self) -> tuple[dict[str, tuple[int, int]], ...]:
        """What each thread does: first and end of every parallel dim; one {} without any."""
        parallel = [loop for loop in self.loops if loop.kind == Parallel.name]
        ranges = []
        for loop in parallel:
            extent = self.space.extent(loop.dim)
            starts = range(0, extent, loop.step)
            ranges.append([(loop.dim, (at, min(at + loop.step, extent))) for at in starts])
        return tuple(dict(part) for part in product(*ranges))

    @property
    def copies(self) -> tuple[Copy, ...]:
        """The packs, in the order in which they happen."""
        return tuple(e for e in self.entries if isinstance(e, Copy))

    @property
    def kernel(self) -> Kernel:
        """The micro-kernel, always the last entry."""
        last = self.entries[-1]
        assert isinstance(last, Kernel)
        return last

    def __str__(self) -> str:
        lines, behind, indent = list[str](), list[str](), 0
        for entry in self.entries:
            is_behind = isinstance(entry, Copy) and entry.operand == "C"
            (behind if is_behind else lines).append("  " * indent + _line(entry))
            indent += isinstance(entry, Loop)
        return "\n".join(lines + behind)


def _line(entry: Entry) -> str:
    if isinstance(entry, Loop):
        return f"for {entry.dim} step {entry.step}  # {entry.kind}, {entry.trips} trips"
    if isinstance(entry, Copy):
        shape = "x".join(map(str, entry.shape))
        if entry.operand == "C":
            return f"transform {shape} to C"
        return f"{'transform' if entry.transforms else 'pack'} {entry.operand} to {shape}"
    taps = f" x {entry.taps} taps" if entry.taps > 1 else ""
    split = f" in {entry.lanes} partial sums" if entry.lanes > 1 else ""
    streams = f" of {entry.streams} streams" if entry.streams > 1 else ""
    jammed = f"{entry.lines}x" if entry.lines > 1 else ""
    return (
        f"micro-kernel {jammed}{entry.rows}x{entry.cols} over {entry.depth}{streams}{taps}{split}, "
        f"unrolled {entry.unroll}"
    )


def build(problem: Problem, schedule: Schedule) -> Nest:
    """The loop nest of a schedule.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
    """
    check_legal(problem, schedule)
    space = scheduled_space(problem, schedule)
    register = schedule.register
    blocks = dict(space.extents)
    entries: list[Entry] = []
    for step in schedule.steps:
        if isinstance(step, Parallel):
            unit = tile_unit(space, schedule, step.dim)
            size = part_size(blocks[step.dim], step.parts, unit)
            entries.append(Loop(step.dim, size, -(-blocks[step.dim] // size), step.name))
            blocks[step.dim] = size
        elif isinstance(step, Tile | Stream):
            size = step.depth if isinstance(step, Stream) else step.size
            trips = -(-blocks[step.dim] // size)
            entries.append(Loop(step.dim, size, trips, step.name))
            blocks[step.dim] = min(size, blocks[step.dim])
        elif isinstance(step, Pack):
            shape = _packed_shape(problem, space, schedule, blocks, step)
            entries.append(Copy(step.operand, shape, schedule.transforms))
        elif isinstance(step, Register):
            entries.extend(_micro_loops(space, schedule, blocks))
    depth = blocks[space.stream]
    kernel = Kernel(register.rows, register.cols, depth, space.taps, schedule.unroll)
    walks = space.spans_groups or schedule.sweeps
    kernel = replace(kernel, lanes=schedule.lanes, lines=schedule.jam, walks=walks)
    entries.append(replace(kernel, streams=schedule.streams))
    return Nest(space, tuple(entries))


def _micro_loops(space: IterationSpace, schedule: Schedule, blocks: dict[str, int]) -> list[Entry]:
    """The loops over micro-tiles that are left inside the innermost block."""
    register = schedule.register
    rows: list[Entry] = []
    for dim in space.row_dims:
        step = tile_unit(space, schedule, dim)
        rows.append(Loop(dim, step, -(-blocks[dim] // step), "micro"))
    cols: list[Entry] = [
        Loop(space.col, register.cols, -(-blocks[space.col] // register.cols), "micro")
    ]
    if POINT in blocks:
        points = blocks[POINT]
        sums = Copy("C", (points, blocks[space.row], register.cols), transforms=True)
        return [*cols, sums, Loop(POINT, 1, points, "micro"), *rows]
    return cols + rows if register.outer == "cols" else rows + cols


def _packed_shape(
    problem: Problem,
    space: IterationSpace,
    schedule: Schedule,
    blocks: dict[str, int],
    step: Pack,
) -> tuple[int, ...]:
    depth, cols = blocks[space.stream], schedule.register.cols
    if step.operand == "B":
        panel = (depth, cols) if schedule.lanes == 1 else (cols, depth)
        return (-(-blocks[space.col] // cols), blocks.get(POINT, space.taps), *panel)
    if POINT in blocks:
        return (blocks[POINT], blocks[space.row], depth)
    if isinstance(problem, Conv2d) and space.image == "A":
        return (
            reach(blocks["oh"], problem.kh, problem),
            reach(blocks["ow"], problem.kw, problem),
            depth,
        )
    return (blocks[space.row], depth)


def reach(outputs: int, taps: int, problem: Conv2d) -> int:
    """Image extent that `outputs` neighbouring outputs read, halo included."""
    return (outputs - 1) * problem.stride + problem.dilation * (taps - 1) + 1
