"""What a plan of a model chose, as what a library for IREE is made of."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewise.errors import BadInputError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.quoting import quoted

if TYPE_CHECKING:  # both load the compiler of kernels
    from tilewise.search.libraries.library import Wanted
    from tilewise.search.networks.plan import Plan


@dataclass(frozen=True)
class Chosen:
    """The kernels that a plan has for the ops of a model.

    Attributes:
        wanted: one for each problem that an op is.
        notes: what is not as planned.
    """

    wanted: tuple["Wanted", ...]
    notes: tuple[str, ...]


def read_plan(path: str, text: str) -> "Plan":
    """A plan of `tilewise plan -o`.

    Raises:
        BadInputError: it is none.
    """
    from tilewise.search.networks.plan import Plan

    try:
        return Plan.from_json(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"{quoted(path)} is no plan: {error}") from error


def chosen(plan: "Plan") -> Chosen:
    """The kernels of a plan, by the problems of the ops that they stand for.

    A library has one kernel for all ops of a problem: the one that the plan has most often. A
    layer in blocks of channels has its schedule's kernel for the plain image: the nest is the same.
    """
    from tilewise.search.libraries.library import Wanted

    of: dict[str, Counter[tuple[str, str]]] = {}
    steps: dict[str, list[object]] = {}
    notes = []
    for node in plan.nodes:
        if node.found is None:
            continue
        if node.problem is None or node.schedule is None:
            notes.append(f"{node.found.problem}: {node.reason or 'no schedule is planned'}")
            continue
        if any(use.layout.block for use in (*node.reads, *node.makes)):
            notes.append(f"{node.found.problem}: the plan has channels in blocks, "
                         "and IREE has them side by side")  # fmt: skip
        steps[node.schedule.hash] = list(node.schedule.steps)
        counts = of.setdefault(node.found.problem, Counter())
        counts[node.problem, node.schedule.hash] += 1
    wanted = []
    for found, counts in of.items():
        (problem, schedule), times = counts.most_common(1)[0]
        if times < counts.total():
            notes.append(f"{found}: {counts.total() - times} of {counts.total()} ops are planned "
                         f"otherwise than {problem}")  # fmt: skip
        wanted.append(Wanted(parse_problem(problem), steps[schedule], parse_problem(found)))
    return Chosen(tuple(wanted), tuple(dict.fromkeys(notes)))
