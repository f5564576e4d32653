"""TVM MetaSchedule on one matmul or convolution, run by `benchmarks.peers.peer_tuners`.

This file imports nothing of this project: it is run by the Python of an environment that has
TVM (docs/tuners.md says which), and prints one JSON object on its last line. f32 on one core.

    TVM_PYTHON benchmarks/peers/peer_tuners_tvm.py '{"op": "matmul", "m": 64, ...}' --seconds 60
"""

import argparse
import json
import logging
import tempfile
import time
from dataclasses import dataclass, field

import numpy
import tvm
from tvm import te, topi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

FINAL_REPEATS = 25
TRIALS_AT_ONCE = 8  # candidates between two looks at the clock; 64 is the default


def matmul(m: int, n: int, k: int) -> list[te.Tensor]:
    a = te.placeholder((m, k), "float32", name="A")
    b = te.placeholder((k, n), "float32", name="B")
    r = te.reduce_axis((0, k), "r")
    return [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def conv2d(size: dict[str, int]) -> list[te.Tensor]:
    image = te.placeholder([size[d] for d in ("n", "h", "w", "ci")], "float32", name="A")
    kernel = te.placeholder([size[d] for d in ("kh", "kw", "ci", "co")], "float32", name="B")
    stride, pad, dilation = size.get("stride", 1), size.get("pad", 0), 1
    out = topi.nn.conv2d_nhwc(image, kernel, stride, pad, dilation)
    return [image, kernel, out]


@dataclass
class Trace:
    """When the results of each batch came, and the best median so far, in seconds."""

    begin: float
    end: float
    best_s: float = float("inf")
    points: list[tuple[float, float]] = field(default_factory=list)
    trials: int = 0
    failed: int = 0

    def take(self, results: list[ms.runner.RunnerResult]) -> None:
        for result in results:
            times = sorted(float(t) for t in result.run_secs or ())
            self.trials += 1
            self.failed += not times
            if times and times[len(times) // 2] < self.best_s:
                self.best_s = times[len(times) // 2]
                self.points.append((time.monotonic() - self.begin, self.best_s))
        if self.is_over:
            raise TimeoutError  # the search has no bound in seconds of its own

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.end


@derived_object
class TakeResults(ms.measure_callback.PyMeasureCallback):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def apply(self, _scheduler, _task, _candidates, _built, results) -> None:
        self.trace.take(results)


def final_s(
    database: ms.Database, module: tvm.IRModule, target: tvm.target.Target, tensors: list[te.Tensor]
) -> float:
    """The best schedule built once more and timed: median of the repeats."""
    schedule = ms.tir_integration.compile_tir(database, module, target)
    built = tvm.compile(schedule.mod, target=target).jit()
    shapes = [[int(extent) for extent in tensor.shape] for tensor in tensors]
    random = numpy.random.default_rng(0)
    arrays = [tvm.runtime.tensor(random.standard_normal(s, dtype="float32")) for s in shapes]
    timer = built.time_evaluator("main", tvm.cpu(), number=1, repeat=FINAL_REPEATS, min_repeat_ms=5)
    return float(timer(*arrays).median)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--processor", required=True, help="LLVM's name")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    logging.disable(logging.INFO)
    size = json.loads(options.size)
    tensors = matmul(size["m"], size["n"], size["k"]) if size["op"] == "matmul" else conv2d(size)
    module = tvm.IRModule({"main": te.create_prim_func(tensors)})
    target = tvm.target.Target({"kind": "llvm", "mcpu": options.processor, "num-cores": 1})
    begin = time.monotonic()
    trace = Trace(begin, begin + options.seconds)
    with tempfile.TemporaryDirectory() as folder:
        database = ms.database.JSONDatabase(work_dir=folder)
        try:
            ms.tune_tir(
                module, target, work_dir=folder, max_trials_global=100_000, seed=options.seed,
                num_trials_per_iter=TRIALS_AT_ONCE, num_tuning_cores=1, database=database,
                measure_callbacks=[
                    ms.measure_callback.AddToDatabase(),
                    ms.measure_callback.UpdateCostModel(),
                    TakeResults(trace),
                ],
            )  # fmt: skip
        except RuntimeError:  # as which an exception of a callback comes back
            if not trace.is_over:
                raise
        elapsed = time.monotonic() - begin
        found = {
            "version": f"TVM {tvm.__version__}", "points": trace.points, "elapsed_s": elapsed,
            "trials": trace.trials, "failed": trace.failed,
            "final_s": final_s(database, module, target, tensors),
        }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
