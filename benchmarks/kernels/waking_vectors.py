"""Products of matrix tiles with and without what keeps the vector units awake.

    python -m benchmarks.kernels.waking_vectors [--rounds 5]

Needs AMX. Each round times the same schedules in a process with the vector multiplication of each
step and in one without, whose code is compiled apart. Speeds are medians over the rounds, with
their range. See docs/experiments/0060-waking-vector-units.md.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from tilewise.kernels.native import lower
from tilewise.kernels.native.microkernels.matrix_tiles_code import _Call
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.children import child_environment
from tilewise.kernels.target import detect

PACK_B, FETCH_B = {"step": "pack", "operand": "B"}, {"step": "prefetch", "operand": "B"}
PACK_A = {"step": "pack", "operand": "A"}
BURST_FLOPS = 2e8
SECONDS = 8.0  # of all cases in a process

Steps = list[dict[str, Any]]


def blocks(dim: str, size: int) -> dict[str, Any]:
    """Return the step that cuts a dim."""
    if dim == "k":
        return {"step": "stream", "dim": dim, "depth": size}
    return {"step": "tile", "dim": dim, "size": size}


CASES: list[tuple[str, Steps, str]] = [
    ("m=512,n=512,k=512,dtype=bf16", [PACK_B], "rows"),
    ("m=1024,n=1024,k=1024,dtype=bf16", [blocks("k", 512), PACK_B, blocks("m", 512)], "rows"),
    ("m=1024,n=1024,k=1024,dtype=bf16", [blocks("n", 512), PACK_B], "rows"),
    ("m=2048,n=2048,k=2048,dtype=bf16",
     [blocks("k", 512), blocks("n", 1024), PACK_B, blocks("m", 64), PACK_A], "rows"),
    ("m=128,n=768,k=768,dtype=bf16", [PACK_B], "rows"),
    ("m=128,n=3072,k=768,dtype=bf16", [PACK_B, FETCH_B], "cols"),
    ("m=128,n=768,k=3072,dtype=bf16", [blocks("k", 768), PACK_B], "rows"),
    ("m=128,n=4096,k=4096,dtype=bf16", [blocks("k", 832), PACK_B, FETCH_B, PACK_A], "cols"),
    ("m=16,n=4096,k=4096,dtype=bf16", [PACK_B, FETCH_B], "rows"),
    ("m=128,n=4096,k=4096,dtype=i8", [blocks("k", 1664), PACK_B, FETCH_B, PACK_A], "cols"),
    ("m=1024,n=1024,k=1024,dtype=i8", [PACK_B], "rows"),
]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", choices=("awake", "asleep"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(speeds(is_awake=options.child == "awake")))
        return
    if not any(one.startswith("amx") for one in detect().features):
        sys.exit("waking_vectors: this processor has no AMX")
    found: dict[str, list[list[float]]] = {"asleep": [], "awake": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for mode, rounds in found.items():
                (Path(folder) / mode).mkdir(exist_ok=True)
                environment = child_environment(TILEWISE_CACHE_DIR=f"{folder}/{mode}")
                command = [sys.executable, "-m", "benchmarks.kernels.waking_vectors"]
                command += ["--child", mode]
                done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
                rounds.append(json.loads(done.stdout))
    print(f"{detect().canonical}: GFLOP/s, constant weights")
    print(f"{'problem':36} {'cut':16} {'without':>8} {'with':>8} {'ratio':>6}  of the rounds")
    for at, (problem, steps, _) in enumerate(CASES):
        without, with_it = ([one[at] for one in found[mode]] for mode in ("asleep", "awake"))
        ratios = [b / a for a, b in zip(without, with_it, strict=True)]
        cuts = " ".join(f"{s['dim']} {s.get('size') or s['depth']}" for s in steps if "dim" in s)
        pair = f"{median(without):8.0f} {median(with_it):8.0f} {median(ratios):6.2f}"
        print(f"{problem:36} {cuts:16} {pair}  {min(ratios):.2f} to {max(ratios):.2f}")


def speeds(*, is_awake: bool) -> list[float]:
    """Return the median speed of each case in this process."""
    if not is_awake:
        _Call._keep_awake = lambda _call: None  # type: ignore[method-assign]
    target, kernels, times = detect(), [], [list[float]() for _ in CASES]
    for text, steps, outer in CASES:
        problem = parse_problem(f"matmul:{text},weights=constant")
        rows = min(32, getattr(problem, "m"))  # noqa: B009
        op = "tdpbssd" if "i8" in text else "tdpbf16ps"
        tile = {"step": "register", "rows": rows, "cols": 32, "outer": outer}
        ends = [{"step": "instruction", "op": f"x86.amx.{op}"}, tile]
        whole = Schedule.from_json([*steps, *ends, {"step": "unroll", "factor": 2}])
        operands = make_operands(problem, 0)
        kernels.append((problem.flops, lower(problem, whole, target).bind(operands), operands))
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for (flops, kernel, _), samples in zip(kernels, times, strict=True):
            count = max(1, int(BURST_FLOPS / flops))
            kernel(1)
            begin = time.thread_time()
            kernel(count)
            samples.append((time.thread_time() - begin) / count)
    return [flops / median(t) / 1e9 for (flops, _, _), t in zip(kernels, times, strict=True)]


if __name__ == "__main__":
    main()
