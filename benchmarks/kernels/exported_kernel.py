"""An exported kernel against the one that was tuned: the same operands, in alternating calls.

python -m benchmarks.kernels.exported_kernel [PROBLEM]
"""

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.kernels.native import lower
from tilewise.kernels.native.export.module import export
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import Conv2d, Problem, parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile, Unroll
from tilewise.kernels.target import detect

ROUNDS = 400


def schedule_for(problem: Problem, lanes: int) -> Schedule:
    register = Register(8, 3 * lanes)
    if isinstance(problem, Conv2d):
        return Schedule((Pack("B"), Tile("n", 1), Pack("A"), register, Unroll(4)))
    return Schedule((Pack("B"), Tile("m", 128), Pack("A"), register, Unroll(4)))


def load(text: str, operation: str) -> Callable[..., Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "exported.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("exported", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    call: Callable[..., Any] = getattr(module, operation)
    return call


def main() -> None:
    problem = parse_problem(
        sys.argv[1] if len(sys.argv) > 1 else "matmul:m=512,n=512,k=512,dtype=f32"
    )
    target = detect()
    schedule = schedule_for(problem, target.lanes(problem.element.name))
    operands = make_operands(problem)
    tuned = lower(problem, schedule, target).bind(operands)
    call = load(export(problem, schedule, target), problem.op)

    def exported() -> None:
        call(operands["A"], operands["B"], operands["C"], operands.get("bias"))

    runs = (tuned, exported)
    times = np.empty((ROUNDS, 2))
    for run in runs:
        run()
    for i in range(ROUNDS):
        for which in (0, 1) if i % 2 else (1, 0):
            start = time.perf_counter()
            runs[which]()
            times[i, which] = time.perf_counter() - start
    ratios = times[:, 0] / times[:, 1]
    low, middle, high = np.percentile(ratios, (25, 50, 75))
    speeds = problem.flops / np.median(times, axis=0) / 1e9
    print(f"{problem} on {target.canonical}, {ROUNDS} alternating calls")
    print(f"tuned {speeds[0]:.1f} GFLOP/s, exported {speeds[1]:.1f} GFLOP/s")
    print(f"exported / tuned: median {middle:.3f}, quartiles {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
