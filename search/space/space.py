"""The space of a search: the parameters of a problem on a target, and the schedules they mean.

A point asks for blocks of about some size. Its schedule has blocks of the nearest size that cuts
the problem into equal parts: panels into equal blocks, the reduction into balanced chunks. No
block is a sliver, and a script needs little padding. Many points mean the same schedule; a search
tells schedules apart by their hash.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import chain
from math import prod
from operator import itemgetter
from random import Random
from typing import Any

from tilewise.kernels.mlir.tuning_spec.config import AnySchedule
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target
from tilewise.search.records import TimedPoint
from tilewise.search.space.algorithms import ALGORITHM, fetches_panels
from tilewise.search.space.levels import LevelGenerator
from tilewise.search.space.parameters import Parameter, Size, completed, step_aside
from tilewise.search.space.points import Point, Value
from tilewise.search.space.registry import added_parameters, changed
from tilewise.search.space.schedules import part_of, schedule_of, why_too_large
from tilewise.search.space.workload import Workload
from tilewise.search.space.workload_parameters import parameters_of

MAX_KEPT_HASHES = 8192  # points whose schedule's hash is kept
MAX_STEPS_ASIDE = 400  # a walk of so many steps without a free point means that none is left


@dataclass(frozen=True)
class NativeGenerator:
    """Schedules of our own kernels, those of extensions included."""

    workload: Workload

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, in their order."""
        own = parameters_of(self.workload)
        return (*own, *added_parameters(self.workload, own))

    def schedule(self, point: Point) -> Schedule:
        """Return the schedule of a point."""
        return changed(self.workload, point, schedule_of(self.workload, point))

    def why_illegal(self, schedule: AnySchedule) -> str | None:
        """Return why a schedule does not fit the caches, or None, as `Space.why_illegal`."""
        assert isinstance(schedule, Schedule), "this generator made it"
        work = self.workload
        return why_too_large(work.fused or work.problem, work.target, schedule)


@dataclass(frozen=True)
class Space:
    """Every schedule that a search for `problem` on `target` may try.

    With `has_scripts` none has the step `fuse`, which no script has.
    """

    problem: Problem
    target: Target
    has_scripts: bool = False

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what is cached: it is made again where a pickled space is used."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def workload(self) -> Workload:
        """What is known of the problem on the target."""
        if self.has_scripts:
            return Workload(self.problem, self.target)
        return Workload.of(self.problem, self.target)

    @cached_property
    def generator(self) -> NativeGenerator | LevelGenerator:
        """What the parameters are, and what their values mean, by whose code the target runs.

        Raises UnsupportedError if no tuning spec covers the problem, for a target of IREE's.
        """
        if self.target.kind == "iree":
            return LevelGenerator(self.problem, self.target)
        return NativeGenerator(self.workload)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, in their order."""
        return self.generator.parameters

    def parameter(self, name: str) -> Parameter | None:
        """Return the parameter called `name`, if this space has it."""
        return self._by_name.get(name)

    def values(self, name: str) -> tuple[Any, ...]:
        """Return the values of the parameter called `name`; none without such a parameter."""
        found = self.parameter(name)
        return found.values if found else ()

    @cached_property
    def _by_name(self) -> dict[str, Parameter]:
        return {p.name: p for p in self.parameters}

    def wanting(self, point: Point, **wanted: Any) -> Point:
        """Return a point with wanted values, of sizes the nearest; this space may lack others."""
        for name, value in wanted.items():
            size = self.parameter(name)
            found = size.nearest(value) if isinstance(size, Size) else value
            point = point | {name: found} if found in self.values(name) else point
        return point

    def encode(self, point: Point) -> tuple[float, ...]:
        """Return a point as numbers; similar points have similar numbers."""
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
        """Return the points that differ in one parameter, by a step."""
        for p in self.parameters:
            for value in p.neighbours(point[p.name]):
                yield point | {p.name: value}

    def holds(self, point: Point) -> bool:
        """Return whether `point` belongs to this space; a stored one may be of an earlier one."""
        return all(point.get(p.name) in p.values for p in self.parameters)

    def stored(self, points: Iterable[TimedPoint]) -> list[TimedPoint]:
        """Return completed points of an earlier space that this one has, with their times."""
        known = ((completed(self.parameters, params), time_us) for params, time_us in points)
        return [(point, time_us) for point, time_us in known if self.holds(point)]

    @property
    def size(self) -> int:
        """Number of points (several can mean one schedule)."""
        return prod(len(p.values) for p in self.parameters)

    def schedule(self, point: Point) -> AnySchedule:
        """Return the schedule of a point, without steps that have no effect."""
        return self.generator.schedule(point)

    def legal_hash(self, point: Point) -> str | None:
        """Return the hash of a point's schedule; None if it does not fit the caches.

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
        """Return a point with uniformly drawn parameters."""
        return {p.name: random.choice(p.values) for p in self.parameters}

    def free_neighbour(
        self, point: Point, is_free: Callable[[Point], bool], random: Random
    ) -> Point | None:
        """Return an untried point a few random steps from `point`; None if none was found."""
        for _ in range(MAX_STEPS_ASIDE):
            point = step_aside(self.parameters, point, random)
            if is_free(point):
                return point
        return None

    @cached_property
    def fetches_panels(self) -> bool:
        """Whether B is transformed to so large panels that products wait for them."""
        return fetches_panels(self.workload)

    def part_of(self, point: Point, rows: int, cols: int) -> dict[str, int]:
        """Return the extents of one thread's part, for a register tile of `rows` by `cols`."""
        key = (point.get("parallel"), point.get(ALGORITHM), rows, cols)
        if key not in self._parts:
            self._parts[key] = part_of(self.workload, point, rows, cols)
        return self._parts[key]

    @cached_property
    def _parts(self) -> dict[tuple[Value | None, Value | None, int, int], dict[str, int]]:
        """What `part_of` has found; no more than there are tiles, divisions and algorithms."""
        return {}

    def why_illegal(self, schedule: AnySchedule) -> str | None:
        """Return why a schedule that this space made does not fit the target; None if it does."""
        return self.generator.why_illegal(schedule)
