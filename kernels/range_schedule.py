"""Schedules for a range of problems: a few variants, and which of them serves each size."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby, product
from operator import itemgetter
from typing import Any

from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.problem import Problem, ProblemRange, Size, from_plain, to_plain
from tilewise.kernels.schedule import Schedule, check_legal, steps_hash


@dataclass(frozen=True)
class Span:
    """Neighbouring sizes of a range that one variant serves: of two dims a rectangle.

    Attributes:
        first, last: the corners; both are served.
        variant: the position among the schedules.
    """

    first: Size
    last: Size
    variant: int


@dataclass(frozen=True)
class RangeSchedule:
    """Schedules that together serve all sizes of a range.

    Attributes:
        problems: what is computed.
        variants: the schedules; each serves a size.
        choice: for each size of the range, in order, the position of its schedule.
    """

    problems: ProblemRange
    variants: tuple[Schedule, ...]
    choice: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.choice) != len(self.problems.sizes):
            raise ScheduleError(
                f"{self.problems}: {len(self.choice)} choices for {len(self.problems.sizes)} sizes"
            )
        if set(self.choice) != set(range(len(self.variants))):
            raise ScheduleError(f"{self.problems}: each variant serves a size, and no other does")

    def at(self, size: Size) -> Schedule:
        """Return the schedule of a size; raise ProblemError for one that is not in the range."""
        self.problems.at(size)
        return self.variants[self.choice[self.problems.sizes.index(size)]]

    def sizes_of(self, variant: int) -> tuple[Size, ...]:
        """Return the sizes that a variant serves."""
        served = zip(self.problems.sizes, self.choice, strict=True)
        return tuple(size for size, chosen in served if chosen == variant)

    def problems_of(self, variant: int) -> tuple[Problem, ...]:
        """Return the problems that a variant serves."""
        return tuple(map(self.problems.at, self.sizes_of(variant)))

    @property
    def spans(self) -> tuple[Span, ...]:
        """Return the choice as spans, in the order of their first sizes."""
        served = list(zip(self.problems.sizes, self.choice, strict=True))
        width = len(self.problems.ranges[-1])
        spans, above = dict[Size, Span](), dict[tuple[int, int, int], Size]()
        for begin in range(0, len(served), width):
            firsts = dict[tuple[int, int, int], Size]()
            for variant, group in groupby(served[begin : begin + width], itemgetter(1)):
                sizes = [size for size, _ in group]
                columns = sizes[0][-1], sizes[-1][-1], variant
                first = firsts[columns] = above.get(columns, sizes[0])
                spans[first] = Span(first, sizes[-1], variant)
            above = firsts
        return tuple(spans.values())

    @property
    def hash(self) -> str:
        """Return the hash of the variants and of the sizes that they serve."""
        return steps_hash([self.to_json()])

    def check_legal(self) -> None:
        """Raise ScheduleError unless each schedule can be applied to the sizes that it serves."""
        for variant, schedule in enumerate(self.variants):
            for problem in self.problems_of(variant):
                check_legal(problem, schedule)

    def to_json(self) -> dict[str, Any]:
        """Return the variants, and the corners and the variant of each span."""
        return {
            "problem": self.problems.canonical,
            "variants": [schedule.to_json() for schedule in self.variants],
            "spans": [[to_plain(one.first), to_plain(one.last), one.variant] for one in self.spans],
        }

    @classmethod
    def from_json(cls, problems: ProblemRange, source: Mapping[str, Any]) -> "RangeSchedule":
        """Return the schedules that `to_json` gave; raise ScheduleError where it did not."""
        variants = tuple(Schedule.from_json(steps) for steps in source["variants"])
        choice = list[tuple[Size, int]]()
        for first, last, variant in source["spans"]:
            ends = zip(from_plain(first), from_plain(last), problems.ranges, strict=False)
            held = product(*(range(a, b + 1, values.step) for a, b, values in ends))
            choice += [(size, variant) for size in held]
        choice.sort()
        if [size for size, _ in choice] != list(problems.sizes):
            raise ScheduleError(f"{problems}: the spans do not hold each size once")
        return cls(problems, variants, tuple(variant for _, variant in choice))
