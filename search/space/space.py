"""Problem + Target -> the parameters of a search; a point of them -> a Schedule.

Block sizes are asked for as targets (about this many columns, this deep) and snapped
to sizes that cut the problem into equal parts: panels into equal blocks, the reduction
into balanced chunks. So no block is a sliver, and a script needs no padding to speak of.
Many points then mean the same schedule; a search tells them apart by the schedule's hash.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from math import prod
from operator import itemgetter
from random import Random
from typing import Literal

from kernels.arithmetic import Arithmetic, arithmetic, must_pack
from kernels.problem import Problem
from kernels.problem.iteration import (
    IterationSpace,
    is_packed_by_rows,
    iteration_space,
)
from kernels.schedule import (
    Pack,
    Parallel,
    Prefetch,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Tile,
    Unroll,
)
from kernels.schedule.legality import part_size, tile_unit
from kernels.target.model import Target
from search.space.block_sizes import balanced_chunk, equal_block
from search.space.cache_limits import why_too_large
from search.space.parameters import (
    WHOLE,
    Choice,
    Parameter,
    Point,
    RegisterTile,
    Size,
    Value,
    step_aside,
)
from search.space.register_tiles import register_tiles
from search.space.tiles import SplitTile, split_tiles
from search.space.workload import Stored

UNROLLS = (1, 2, 4, 8)
WANTED_DEPTHS = (96, 128, 192, 256, 384, 512, 768, 1024, 2048)
WANTED_COLS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
WANTED_ROWS = (16, 32, 64, 128, 256, 512, 1024)
WANTED_IMAGE_ROWS = (1, 2, 4, 8, 16, 32)
MOST_HASHES = 8192  # answers about points that are kept
STEPS_ASIDE = 400  # walks this long without a free point mean that none is left


@dataclass(frozen=True)
class Space:
    """Every schedule that a search for `problem` on `target` may try."""

    problem: Problem
    target: Target

    @cached_property
    def dims(self) -> IterationSpace:
        """The problem's iteration space."""
        return iteration_space(self.problem)

    @cached_property
    def extents(self) -> dict[str, int]:
        """The extent of each dim."""
        return dict(self.dims.extents)

    @cached_property
    def stored(self) -> dict[str, Stored]:
        """What plays A and B, as it lies in memory."""
        return {role: Stored.of(self.problem, role) for role in ("A", "B")}

    @cached_property
    def lanes(self) -> int:
        """Lanes of a vector of the accumulator."""
        return self.target.lanes(self.problem.element.name)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters; one with a single value is left out of a sampler's view."""
        depth = self._extent(self.dims.stream)
        chosen = [
            RegisterTile("tile", self._tiles()),
            Parameter("unroll", tuple(u for u in UNROLLS if u <= depth)),
            Choice("outer", ("cols", "rows")),
            Choice("pack_a", self._packs("A")),
            Choice("pack_b", self._packs("B")),
            self._size("depth", WANTED_DEPTHS, self.dims.stream),
            self._size("cols", WANTED_COLS, self.dims.col),
        ]
        if self.dims.image == "A":
            chosen.append(self._size("image_rows", WANTED_IMAGE_ROWS, "oh"))
        else:
            chosen.append(self._size("rows", WANTED_ROWS, self.dims.row))
        if self._may_prefetch:
            chosen.append(Choice("prefetch", (False, True)))
        if self.target.threads > 1:
            chosen.append(Choice("parallel", self._divisions))
        return tuple(chosen)

    def parameter(self, name: str) -> Parameter | None:
        """The parameter called `name`, if this space has it."""
        return self._by_name.get(name)

    def values(self, name: str) -> tuple[Value, ...]:
        """The values of the parameter called `name`; none where there is no such parameter."""
        found = self.parameter(name)
        return found.values if found else ()

    @cached_property
    def _by_name(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters}

    def encode(self, point: Point) -> tuple[float, ...]:
        """A point as numbers; near points have near numbers."""
        codes = [code[point[name]] for name, code in self._codes.items()]
        return tuple(chain.from_iterable(codes))

    @cached_property
    def _codes(self) -> dict[str, dict[Value, tuple[float, ...]]]:
        return {p.name: {value: p.encode(value) for value in p.values} for p in self.parameters}

    @cached_property
    def key(self) -> Callable[[Point], tuple[Value, ...]]:
        """What tells a point from others: its values, in the order of the parameters."""
        return itemgetter(*(p.name for p in self.parameters))

    def neighbours(self, point: Point) -> Iterator[Point]:
        """The points that differ in one parameter, by a step."""
        for p in self.parameters:
            for value in p.neighbours(point[p.name]):
                yield point | {p.name: value}

    @cached_property
    def _may_prefetch(self) -> bool:
        """Whether B is packed row by row from farther away than L2."""
        is_far = 2 * self.stored["B"].total > self.target.l2_bytes
        return is_packed_by_rows(self.problem) and is_far

    @cached_property
    def _divisions(self) -> tuple[Value, ...]:
        """Ways to divide the result among the threads, as `n=2` or `m=2,n=4`; and not to."""
        dims = [d for d in self.dims.dims if d != self.dims.stream and self._extent(d) > 1]
        threads = self.target.threads
        whole = [f"{dim}={threads}" for dim in dims]
        planes = [
            f"{first}={parts},{second}={threads // parts}"
            for first, second in combinations(dims, 2)
            for parts in range(2, threads // 2 + 1)
            if threads % parts == 0
        ]
        return ("none", *whole, *planes)

    @cached_property
    def register_tiles(self) -> tuple[tuple[int, int], ...]:
        """(rows, vectors) of tiles of whole vectors; see `search.space.register_tiles`."""
        return register_tiles(
            self.extents[self.dims.row],
            -(-self.extents[self.dims.col] // self.lanes),
            self.target.vector_registers - (2 if self.adds_apart else 1),
        )

    @cached_property
    def split_tiles(self) -> tuple[SplitTile, ...]:
        """Tiles of single columns, where the result is narrow."""
        return split_tiles(self.problem, self.target)

    def _tiles(self) -> tuple[Value, ...]:
        plain = (f"{rows}x{vectors}" for rows, vectors in self.register_tiles)
        return (*plain, *map(str, self.split_tiles))

    def holds(self, point: Point) -> bool:
        """Whether `point` is of this space: one that was stored may be of an earlier one."""
        return all(point.get(p.name) in p.values for p in self.parameters)

    @cached_property
    def adds_apart(self) -> bool:
        """Whether a product is an instruction of its own, which takes a register."""
        return not (self.problem.element.is_float or self.how.dot)

    @property
    def size(self) -> int:
        """Number of points (several can mean one schedule)."""
        return prod(len(p.values) for p in self.parameters)

    @cached_property
    def how(self) -> Arithmetic:
        """How elements are multiplied where the reduction is not split."""
        return arithmetic(self.problem.element.name, self.target)

    def _packs(self, operand: str) -> tuple[Value, ...]:
        """Whether to pack is a choice only where the operand can be read in place."""
        return (True,) if operand in must_pack(self.problem, self.how) else (False, True)

    def _extent(self, dim: str) -> int:
        return self.extents[dim]

    def _size(self, name: str, sizes: tuple[int, ...], dim: str) -> Size:
        extent = self._extent(dim)
        return Size(name, (*(s for s in sizes if s < extent), WHOLE), extent)

    def schedule(self, point: Point) -> Schedule:
        """The schedule that a point means; steps without effect are left out."""
        outer: Literal["cols", "rows"] = "cols" if point["outer"] == "cols" else "rows"
        tile = SplitTile.parse(str(point["tile"]))
        if tile is not None:
            # Both factors are read along the reduction: A in place, B where it can be.
            how = arithmetic(self.problem.element.name, self.target, split=True)
            point = point | {"pack_a": False, "pack_b": "B" in must_pack(self.problem, how)}
            register = Register(tile.rows, tile.cols, outer)
            ending: list[Step] = [Split(self.dims.stream, tile.vectors * self.lanes)]
        else:
            rows, vectors = (int(x) for x in str(point["tile"]).split("x"))
            register, ending = Register(rows, vectors * self.lanes, outer), []
        steps = [*self._outer_steps(point, register), register, *ending]
        if int(point["unroll"]) > 1:
            steps.append(Unroll(int(point["unroll"])))
        return Schedule(tuple(steps))

    def legal_hash(self, point: Point) -> str | None:
        """The hash of the schedule that a point means; None where the caches cannot take it.

        A sampler asks about the same few points again and again, so answers are kept.
        """
        key = self.key(point)
        if key not in self._hashes:
            if len(self._hashes) >= MOST_HASHES:
                self._hashes.clear()
            schedule = self.schedule(point)
            is_legal = self.why_illegal(schedule) is None
            self._hashes[key] = schedule.hash if is_legal else None
        return self._hashes[key]

    @cached_property
    def _hashes(self) -> dict[tuple[Value, ...], str | None]:
        return {}

    def _outer_steps(self, point: Point, register: Register) -> list[Step]:
        divided = self._parallel(point, register)
        extents = self._part(divided, register)
        steps: list[Step] = [*divided]
        steps += [Tile(dim, 1) for dim in self.dims.lead]
        steps += _block(self.dims.col, extents, int(point["cols"]), register.cols)
        depth = balanced_chunk(self._extent(self.dims.stream), int(point["depth"]), self.how.depth)
        if depth < self._extent(self.dims.stream):
            steps.append(Stream(self.dims.stream, depth))
        if point["pack_b"]:
            moves_b = (self.dims.col, self.dims.stream)
            moves = any(isinstance(s, Tile | Stream) and s.dim in moves_b for s in steps)
            steps.append(Pack("B"))
            if point.get("prefetch") and moves:
                steps.append(Prefetch("B"))
        if self.dims.image == "A":
            steps.append(Tile("n", 1))
            steps += _block("oh", extents, int(point["image_rows"]), 1)
        else:
            steps += _block(self.dims.row, extents, int(point["rows"]), register.rows)
        if point["pack_a"]:
            steps.append(Pack("A"))
        return steps

    def _parallel(self, point: Point, register: Register) -> list[Parallel]:
        """The steps of a division, with no more parts of a dim than it has register tiles."""
        steps = []
        division = str(point.get("parallel", "none"))
        for dim, parts in (part.split("=") for part in division.split(",") if part != "none"):
            tiles = -(-self._extent(dim) // tile_unit(self.dims, register, dim))
            if min(tiles, int(parts)) > 1:
                steps.append(Parallel(dim, min(tiles, int(parts))))
        return steps

    def _part(self, divided: list[Parallel], register: Register) -> dict[str, int]:
        """The extents of one thread's part."""
        extents = dict(self.extents)
        for step in divided:
            unit = tile_unit(self.dims, register, step.dim)
            extents[step.dim] = part_size(extents[step.dim], step.parts, unit)
        return extents

    def draw(self, random: Random) -> Point:
        """A point with each parameter's value drawn alike."""
        return {p.name: random.choice(p.values) for p in self.parameters}

    def free_point_beside(
        self, point: Point, is_free: Callable[[Point], bool], random: Random
    ) -> Point | None:
        """A free point a few random steps from `point`; None when a long walk meets none."""
        for _ in range(STEPS_ASIDE):
            point = step_aside(self.parameters, point, random)
            if is_free(point):
                return point
        return None

    def part_of(self, point: Point, rows: int, cols: int) -> dict[str, int]:
        """The extents of one thread's part, for a register tile of `rows` by `cols`."""
        key = (point.get("parallel"), rows, cols)
        if key not in self._parts:
            register = Register(rows, cols, "cols")
            self._parts[key] = self._part(self._parallel(point, register), register)
        return self._parts[key]

    @cached_property
    def _parts(self) -> dict[tuple[Value | None, int, int], dict[str, int]]:
        """What `part_of` has found; no more than there are tiles and divisions."""
        return {}

    def why_illegal(self, schedule: Schedule, operand: str = "") -> str | None:
        """Why the caches cannot take a schedule that the problem can; None when they can.

        Args:
            schedule: one that this space made.
            operand: look at the pack of this one alone.
        """
        return why_too_large(self.problem, self.target, schedule, operand)


def _block(dim: str, extents: dict[str, int], wanted: int, unit: int) -> list[Step]:
    size = equal_block(extents[dim], wanted, unit)
    return [Tile(dim, size)] if size < extents[dim] else []
