"""The space of a search: the parameters of a problem on a target, and the schedules they mean.

A point asks for blocks of about some size. Its schedule has blocks of the nearest size that cuts
the problem into equal parts: panels into equal blocks, the reduction into balanced chunks. No
block is a sliver, and a script needs little padding. Many points mean the same schedule; a search
tells schedules apart by their hash.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import ceil, prod
from operator import itemgetter
from random import Random
from typing import Any

from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
from tilewise.kernels.nest import Nest, Stage, shape_of
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule, loop_nest
from tilewise.kernels.target.model import KIB, Target
from tilewise.search.space.algorithms import ALGORITHM
from tilewise.search.space.parameters import Parameter, Size, step_aside
from tilewise.search.space.points import Point, Value
from tilewise.search.space.registry import added_parameters, changed
from tilewise.search.space.schedules import part_of, schedule_of
from tilewise.search.space.workload import Workload
from tilewise.search.space.workload_parameters import parameters_of

MIN_SCRATCH_BYTES = 32 * KIB * KIB  # a packed block may take as much, however small the last cache
SHALLOW_DEPTH = 128  # elements; a reduction that is cut this short is not cut any shorter


def why_too_large(
    problem: Problem, target: Target, schedule: Schedule, operand: str = ""
) -> str | None:
    """Return why the target's caches cannot take a legal schedule; None when they can.

    A packed block has to fit the last cache, because each block of the other operand reads it
    again. A panel of B that several tiles of rows read has to fit the second cache, unless the
    reduction is cut short already.

    Args:
        problem: what is computed.
        target: whose caches.
        schedule: legal on the problem.
        operand: look at what is held of this one alone; both if empty.
    """
    nest = loop_nest(problem, schedule)
    limit = max(target.l3_bytes, MIN_SCRATCH_BYTES)
    for here in nest.visit():
        stage = here.node
        if not isinstance(stage, Stage) or stage.is_ahead:
            continue  # a model's weights are packed whole, and stay
        size = prod(shape_of(nest, here)) * problem.element.bytes
        if size > limit and operand in ("", stage.operand):
            return (
                f"the packed block of {stage.operand} takes {size >> 20} MiB, "
                f"more than the {limit >> 20} MiB of the last cache"
            )
    return None if operand == "A" else _why_panel_too_large(target, nest)


def _why_panel_too_large(target: Target, nest: Nest) -> str | None:
    depth, tile = nest.depth, nest.tile
    if depth <= SHALLOW_DEPTH or nest.compute.lanes > 1:
        return None
    panel = tile.cols * depth * nest.taps * nest.problem.element.bytes
    row_tiles = ceil(nest.extent(nest.row) / tile.rows)
    if panel <= target.l2_bytes or row_tiles == 1:
        return None
    return (
        f"a panel of B takes {panel >> 10} KiB, more than the {target.l2_bytes >> 10} KiB "
        f"of the second cache; stream a reduction of less than {depth}"
    )


MAX_KEPT_HASHES = 8192  # points whose schedule's hash is kept
MAX_STEPS_ASIDE = 400  # a walk of so many steps without a free point means that none is left


@dataclass(frozen=True)
class Space:
    """Every schedule that a search for `problem` on `target` may try."""

    problem: Problem
    target: Target

    @cached_property
    def workload(self) -> Workload:
        """What is known of the problem on the target."""
        return Workload(self.problem, self.target)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, in their order."""
        own = parameters_of(self.workload)
        return (*own, *added_parameters(self.workload, own))

    def parameter(self, name: str) -> Parameter | None:
        """The parameter called `name`, if this space has it."""
        return self._by_name.get(name)

    def values(self, name: str) -> tuple[Any, ...]:
        """The values of the parameter called `name`; none where there is no such parameter."""
        found = self.parameter(name)
        return found.values if found else ()

    @cached_property
    def _by_name(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters}

    def nearest_size(self, name: str, wanted: int) -> Value:
        """The value of a parameter of sizes that is nearest to a wanted one."""
        size = self.parameter(name)
        assert isinstance(size, Size)
        return size.nearest(wanted)

    def encode(self, point: Point) -> tuple[float, ...]:
        """A point as numbers; near points have near numbers."""
        codes = [code[point[name]] for name, code in self._codes.items()]
        return tuple(chain.from_iterable(codes))

    @cached_property
    def _codes(self) -> dict[str, dict[Value, tuple[float, ...]]]:
        return {p.name: {value: p.encode(value) for value in p.values} for p in self.parameters}

    @cached_property
    def key(self) -> Callable[[Point], tuple[Value, ...]]:
        """Gives a point's values in the order of the parameters, as a key of dicts."""
        return itemgetter(*(p.name for p in self.parameters))

    def neighbours(self, point: Point) -> Iterator[Point]:
        """The points that differ in one parameter, by a step."""
        for p in self.parameters:
            for value in p.neighbours(point[p.name]):
                yield point | {p.name: value}

    def holds(self, point: Point) -> bool:
        """Whether `point` is of this space: one that was stored may be of an earlier one."""
        return all(point.get(p.name) in p.values for p in self.parameters)

    @property
    def size(self) -> int:
        """Number of points (several can mean one schedule)."""
        return prod(len(p.values) for p in self.parameters)

    def schedule(self, point: Point) -> AnySchedule:
        """The schedule that a point means; steps without effect are left out."""
        return changed(self.workload, point, schedule_of(self.workload, point))

    def legal_hash(self, point: Point) -> str | None:
        """The hash of the schedule that a point means; None where the caches cannot take it.

        The space keeps its answers, because a sampler asks about the same few points again.
        """
        key = self.key(point)
        if key not in self._hashes:
            if len(self._hashes) >= MAX_KEPT_HASHES:
                self._hashes.clear()
            schedule = self.schedule(point)
            is_legal = self.why_illegal(schedule) is None
            self._hashes[key] = schedule.hash if is_legal else None
        return self._hashes[key]

    @cached_property
    def _hashes(self) -> dict[tuple[Value, ...], str | None]:
        return {}

    def draw(self, random: Random) -> Point:
        """A point with each parameter's value drawn alike."""
        return {p.name: random.choice(p.values) for p in self.parameters}

    def free_point_beside(
        self, point: Point, is_free: Callable[[Point], bool], random: Random
    ) -> Point | None:
        """A free point a few random steps from `point`; None when a long walk meets none."""
        for _ in range(MAX_STEPS_ASIDE):
            point = step_aside(self.parameters, point, random)
            if is_free(point):
                return point
        return None

    def part_of(self, point: Point, rows: int, cols: int) -> dict[str, int]:
        """The extents of one thread's part, for a register tile of `rows` by `cols`."""
        key = (point.get("parallel"), point.get(ALGORITHM), rows, cols)
        if key not in self._parts:
            self._parts[key] = part_of(self.workload, point, rows, cols)
        return self._parts[key]

    @cached_property
    def _parts(self) -> dict[tuple[Value | None, Value | None, int, int], dict[str, int]]:
        """What `part_of` has found; no more than there are tiles, divisions and algorithms."""
        return {}

    def why_illegal(self, schedule: AnySchedule, operand: str = "") -> str | None:
        """Why the caches cannot take a schedule that the problem can; None when they can.

        Args:
            schedule: one that this space made.
            operand: look at the pack of this one alone.
        """
        assert isinstance(schedule, Schedule), "this space made it"
        return why_too_large(self.problem, self.target, schedule, operand)
