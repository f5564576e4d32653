"""How long the choice of layouts takes on ResNet-50: `python -m benchmarks.models.choosing`.

Costs are made up (`benchmarks.models.flows`). HiGHS solves the same as an integer programme. Beside
the choice: what the network costs with every layer's own best, and with one layout everywhere.
"""

import time
from collections.abc import Callable, Hashable
from statistics import median

from benchmarks.models.flows import priced, resnet50
from benchmarks.models.highs import least_cost
from tilewise.search.networks.choice import Flow, choose

LAYOUTS, SEEDS = (2, 3, 5, 8), 5


def seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def alone(flow: Flow) -> float:
    """Each layer the best for itself."""
    ways = [step.alternatives for step in flow.steps]
    return priced(flow, [min(range(len(w)), key=lambda i, w=w: w[i].cost) for w in ways])


def one_layout(flow: Flow) -> float:
    """All in the best single layout."""

    def picks(layout: Hashable) -> list[int]:
        return [
            next(
                i for i, way in enumerate(step.alternatives) if {*way.reads, *way.makes} == {layout}
            )
            for step in flow.steps
        ]

    layouts = {way.makes[0] for way in flow.steps[0].alternatives}
    return min(priced(flow, picks(layout)) for layout in layouts)


def main() -> None:
    print("layouts  choice, s  HiGHS, s  same cost  alone/choice  one layout/choice")
    for layouts in LAYOUTS:
        flows = [resnet50(layouts, seed=seed) for seed in range(SEEDS)]
        ours = median(seconds(lambda flow=flow: choose(flow)) for flow in flows)
        theirs = median(seconds(lambda flow=flow: least_cost(flow)) for flow in flows)
        costs = [choose(flow).cost for flow in flows]
        same = all(abs(c - least_cost(f)) < 1e-6 * c for c, f in zip(costs, flows, strict=True))
        over = [
            median(price(flow) / cost for cost, flow in zip(costs, flows, strict=True))
            for price in (alone, one_layout)
        ]
        print(f"{layouts:7}  {ours:9.3f}  {theirs:8.2f}  {same!s:>9}  {over[0]:12.3f}"
              f"  {over[1]:17.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
