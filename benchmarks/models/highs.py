"""The choice of layouts as a mixed integer programme, solved by HiGHS.

A variable for each alternative, and for each tensor one for each pair of layouts: made in the
first, had in the second, too. A tensor is had where it is made, or where that variable is 1.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from tilewise.search.networks.choice import Flow

Terms = list[tuple[int, float]]


@dataclass
class _Programme:
    """Costs of variables, which of them are whole numbers, and rows low <= terms <= high."""

    costs: list[float] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    rows: list[tuple[Terms, float, float]] = field(default_factory=list)

    def variable(self, cost: float, whole: bool) -> int:
        self.costs.append(cost)
        self.whole.append(whole)
        return len(self.costs) - 1

    def least(self) -> float:
        entries = [(i, j, v) for i, (terms, _, _) in enumerate(self.rows) for j, v in terms]
        rows, columns, values = zip(*entries, strict=True)
        matrix = coo_matrix((values, (rows, columns)), (len(self.rows), len(self.costs))).tocsr()
        low, high = ([row[i] for row in self.rows] for i in (1, 2))
        solved = milp(
            np.array(self.costs), constraints=LinearConstraint(matrix, low, high),
            bounds=Bounds(0, 1), integrality=np.array(self.whole, int),
            options={"mip_rel_gap": 0.0, "time_limit": 300},
        )  # fmt: skip
        if solved.status:
            raise RuntimeError(f"HiGHS: {solved.message}")
        return float(solved.fun)


def least_cost(flow: Flow) -> float:
    """What the best choice costs."""
    programme = _Programme()
    made: dict[tuple[int, Hashable], Terms] = {}
    asked: dict[tuple[int, Hashable], list[Terms]] = {}
    one = programme.variable(0.0, whole=False)
    programme.rows.append(([(one, 1)], 1, 1))
    for tensor, layout in flow.given.items():
        made[tensor, layout] = [(one, 1)]
    for tensor, layout in flow.wanted.items():
        asked.setdefault((tensor, layout), []).append([(one, 1)])
    for step in flow.steps:
        taken = [programme.variable(way.cost, whole=True) for way in step.alternatives]
        programme.rows.append(([(i, 1) for i in taken], 1, 1))
        for place, tensor in enumerate(step.makes):
            for i, way in zip(taken, step.alternatives, strict=True):
                made.setdefault((tensor, way.makes[place]), []).append((i, 1))
        for place, tensor in enumerate(step.reads):
            wanting: dict[Hashable, Terms] = {}
            for i, way in zip(taken, step.alternatives, strict=True):
                wanting.setdefault(way.reads[place], []).append((i, 1))
            for layout, terms in wanting.items():
                asked.setdefault((tensor, layout), []).append(terms)
    for (tensor, layout), readers in asked.items():
        had: Terms = list(made.get((tensor, layout), []))
        for (other, source), terms in made.items():
            if other == tensor and source != layout:
                moved = programme.variable(flow.conversion(tensor, source, layout), whole=False)
                programme.rows.append(([(moved, -1), *terms], 0, np.inf))
                had.append((moved, 1))
        for terms in readers:
            programme.rows.append(([*had, *((i, -v) for i, v in terms)], 0, np.inf))
    return programme.least()
