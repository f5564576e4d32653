"""Plans of one model timed together: `python -m benchmarks.models.plans A/plan.json B/plan.json`.

`tilewise plan --layouts model -o own` and `tilewise plan -o all` make the two. Each layer and each
copy of a plan is run by itself, hot, all of them in turn; a plan's time is their sum by count. Ops
that are no problem are not run. Run it on a core of its own.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from statistics import median

import numpy as np

from tilewise.kernels.native import lower
from tilewise.kernels.native.conversion import Conversion, converter
from tilewise.kernels.native.passes.passes import UNSIGNED
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import resolve
from tilewise.kernels.target.model import Target
from tilewise.search.networks.lowering.non_gemm import conversion_of
from tilewise.search.networks.plan import Plan
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import Run

ROUNDS = 15


def layer(problem: str, steps: str, target: Target) -> Run:
    found = parse_problem(problem)
    executable = lower(found, Schedule.from_json(json.loads(steps)), target)
    return executable.bind(make_operands(found))


def copy(conversion: Conversion, size: int) -> Run:
    run, source = converter(conversion), np.zeros(conversion.source_shape, UNSIGNED[size])
    target = np.zeros(conversion.target_shape, UNSIGNED[size])

    def runs(times: int) -> None:
        for _ in range(times):
            run(source, target)

    return runs


def parts(plan: Plan) -> Counter[tuple]:
    """What a plan runs, each with its count."""
    found: Counter[tuple] = Counter()
    for node in plan.nodes:
        if node.problem is not None and node.schedule is not None:
            found[node.problem, json.dumps(list(node.schedule.steps))] += 1
    for one in plan.conversions:
        tensor = plan.tensors[one.tensor]
        found[conversion_of(tensor.shape, tensor.dtype, tensor.layout, one.layout)] += 1
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models.plans")
    parser.add_argument("plans", nargs="+", type=Path, metavar="PLAN.json")
    plans = [Plan.from_json(json.loads(one.read_text())) for one in parser.parse_args().plans]
    target = resolve(plans[0].target)
    counted = [parts(plan) for plan in plans]
    every = list(dict.fromkeys(part for some in counted for part in some))
    runs = [layer(*part, target) if isinstance(part[0], str) else copy(*part) for part in every]
    times = [np.array(one.times) for one in interleave(runs, ROUNDS, target.threads)]
    medians = {part: median(one) * 1e6 for part, one in zip(every, times, strict=True)}
    spread = {part: np.subtract(*np.percentile(one, [75, 25])) * 1e6
              for part, one in zip(every, times, strict=True)}  # fmt: skip
    totals = [sum(medians[part] * count for part, count in some.items()) for some in counted]
    for plan, some, total in zip(plans, counted, totals, strict=True):
        around = sum((spread[part] * count) ** 2 for part, count in some.items()) ** 0.5
        planned = plan.totals.chosen_us - sum(one.time_us for one in plan.passes)
        print(f"{plan.model}: {total:.1f} us (spread {around:.1f}), planned "
              f"{planned:.1f}, {len(plan.conversions)} copies, "
              f"{total / totals[0]:.3f} of the first")  # fmt: skip


if __name__ == "__main__":
    main()
