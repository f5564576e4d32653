"""One compiled code for many sizes: what a schedule needs compiled for a range of problems.

Every size is a run-time parameter of a macro-kernel, so the code of one problem serves others of
the range as it is. What differs between them are values of parameters, such as the extent of a dim,
where the parts of threads end, and bytes of scratch.
"""

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from tilewise.kernels.errors import LoweringError, ScheduleError
from tilewise.kernels.native.export.source import body_of, edges, edges_of_parts, parameters_used
from tilewise.kernels.native.macrokernel.sizes import PanelBytes
from tilewise.kernels.native.microkernels.microkernel import Cut, Use, pieces_of
from tilewise.kernels.native.plan import KernelPlan, plan
from tilewise.kernels.problem import ProblemRange, Size
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target

_POSITION = re.compile(r"word\(p, \d+\)")
"""The position of a parameter, which may differ between macro-kernels that pack equally."""


@dataclass(frozen=True)
class RangePlan:
    """A schedule's native code for several sizes, before it is compiled.

    Attributes:
        planned: that of one size, with the border tiles and the scratch that all of them need.
        varying: the parameters of the macro-kernel whose values depend on the size.
        rows: for each size those values, then where the parts of threads begin and end.
    """

    planned: KernelPlan
    varying: tuple[str, ...]
    rows: dict[Size, tuple[int, ...]]

    @classmethod
    def of(
        cls, problems: ProblemRange, schedule: Schedule, sizes: Iterable[Size], target: Target
    ) -> "RangePlan":
        """Return what is compiled of `schedule` for some sizes of a range.

        Raises:
            ScheduleError: it cannot be applied to the problem of a size.
            LoweringError: it needs what the target lacks, or sizes need different code.
        """
        plans = {size: _planned(problems, schedule, size, target) for size in sizes}
        found = {_code(planned) for planned in plans.values()}
        if len(found) != 1:
            raise LoweringError(
                f"{problems}: the schedule {schedule.hash} needs other code for some of "
                f"{len(plans)} sizes; give each of them a variant of its own"
            )
        first, *others = plans.values()
        names = first.source.parameters
        varying = tuple(
            name
            for name in names
            if any(other.sizes.get(name) != first.sizes.get(name) for other in others)
        )
        rows = {
            size: (*(planned.sizes[name] for name in varying), *_ends(planned))
            for size, planned in plans.items()
        }
        return cls(_joined(tuple(plans.values())), varying, rows)

    @property
    def packed_format(self) -> Hashable:
        """Return a key of the format of packed weights; None if weights are not packed ahead.

        Variants of a range with equal keys can share one packed copy.
        """
        planned = self.planned
        if not planned.is_ahead:
            return None
        body = body_of(planned, "prepare")
        used = parameters_used(planned, body, planned.source.parameters)
        pieces = pieces_of(planned.kernel, planned.use)
        values = {name: planned.sizes.get(name, pieces.get(name)) for name in used}
        prepare = planned.source.text.partition("def prepare")[2]
        return frozenset(values.items()), _POSITION.sub("word(p)", prepare)


def served_sizes(
    problems: ProblemRange, schedule: Schedule, target: Target, sizes: Iterable[Size] | None = None
) -> tuple[Size, ...]:
    """Return the sizes of a range that one code of a schedule serves: as many as there are.

    `sizes` are those to be looked at, all unless they are given.
    """
    groups: dict[Hashable, list[Size]] = {}
    for size in problems.sizes if sizes is None else sizes:
        try:
            planned = _planned(problems, schedule, size, target)
        except (ScheduleError, LoweringError):
            continue
        groups.setdefault(_code(planned), []).append(size)
    return max(map(tuple, groups.values()), key=len, default=())


def _planned(problems: ProblemRange, schedule: Schedule, size: Size, target: Target) -> KernelPlan:
    return plan(problems.at(size), schedule, target, shares_code=False)


def _code(planned: KernelPlan) -> Hashable:
    """Return what has to be equal for two sizes to have one code."""
    nest, use = planned.nest, planned.use
    roles = tuple(nest.operand(role).name for role in ("A", "B"))
    return planned.kernel, planned.source, roles, len(nest.parts), use.finishes, use.scales


def _ends(planned: KernelPlan) -> tuple[int, ...]:
    """Return where each part begins and ends, in the order of `edges`; nothing for one thread."""
    if not edges(planned):
        return ()
    return tuple(end for part in edges_of_parts(planned) for end in part)


def _joined(plans: tuple[KernelPlan, ...]) -> KernelPlan:
    """Return the plan of the largest size, with what any of them needs."""
    cuts = {planned.use.cut for planned in plans} - {""}
    cut: Cut = "rows and cols" if len(cuts) > 1 else next(iter(cuts), "")
    rare = frozenset.intersection(*(planned.use.rare for planned in plans))
    use: Use = replace(plans[-1].use, cut=cut, rare=rare)
    panels = [planned.panels for planned in plans]
    largest = PanelBytes(
        a=max(one.a for one in panels),
        b=max(one.b for one in panels),
        c=max(one.c for one in panels),
        shares_c=all(one.shares_c for one in panels),  # else parts would write to one tile of sums
    )
    return replace(plans[-1], use=use, panels=largest)
