"""Steps into a loop nest. Both lowerings, the printer and the counts read it from here."""

from dataclasses import dataclass
from itertools import product

from tilewise.kernels import nest as nodes
from tilewise.kernels.nest import LoopKind, Role, shape_of
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.iteration import IterationSpace, iteration_space
from tilewise.kernels.problem.model import Conv2d
from tilewise.kernels.schedule import Parallel, Schedule, loop_nest


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


_KINDS = {
    LoopKind.PARALLEL: "parallel",
    LoopKind.TILE: "tile",
    LoopKind.K_BLOCK: "stream",
    LoopKind.MICRO: "micro",
}


def build(problem: Problem, schedule: Schedule) -> Nest:
    """The loop nest of a schedule.

    Raises:
        ScheduleError: the schedule cannot be applied to the problem.
    """
    nest = loop_nest(problem, schedule)
    entries: list[Entry] = []
    for here in nest.visit():
        node = here.node
        if isinstance(node, nodes.Loop):
            if nest.dim(node.dim).role is Role.POINT:
                shape = (here.blocks[node.dim], here.blocks[nest.row], nest.tile.cols)
                entries.append(Copy("C", shape, transforms=True))
            entries.append(Loop(node.dim, node.step, here.trips, _KINDS[node.kind]))
        elif isinstance(node, nodes.Stage):
            entries.append(Copy(node.operand, shape_of(nest, here), node.transforms))
        elif isinstance(node, nodes.Compute):
            entries.append(_kernel(nest, node, here.blocks[nest.k]))
    entries.sort(key=lambda entry: isinstance(entry, Kernel))
    return Nest(space_of(nest), tuple(entries))


def _kernel(nest: nodes.Nest, node: nodes.Compute, depth: int) -> Kernel:
    tile, k_block = nest.tile, nest.k_block
    streams = k_block.streams if k_block else 1
    return Kernel(
        tile.rows, tile.cols, depth, nest.taps, node.unroll, node.lanes, tile.lines,
        nest.is_macro, streams,
    )  # fmt: skip


def space_of(nest: nodes.Nest) -> IterationSpace:
    """The dims that the steps of a schedule speak of."""
    if nest.algorithm is None:
        return iteration_space(nest.problem)
    return IterationSpace(
        extents=tuple(nest.extents.items()),
        row_dims=nest.rows,
        col=nest.col,
        stream=nest.k,
        taps=1,
        lead=nest.named(Role.POINT),
        image="A",
        tile=nest.algorithm.tile,
    )


def reach(outputs: int, taps: int, problem: Conv2d) -> int:
    """Image extent that `outputs` neighbouring outputs read, halo included."""
    return (outputs - 1) * problem.stride + problem.dilation * (taps - 1) + 1
