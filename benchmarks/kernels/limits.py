"""What stops a kernel: the peaks, its micro-kernel out of L1 and out of L2, and the peers.

    python -m benchmarks.kernels.limits [PROBLEM ...] [--target cpu:host] [--trials 64] [--db URL]

For each problem the stored best schedule (searched for if need be) runs in the same
interleaved rounds as its own micro-kernel on operands that fit L1, the same on operands
that fit L2, and OpenBLAS. What the rounds lose step by step from the multiply-add peak has
then a name: the loads of the micro-kernel (L1), the streaming of B (L2), and packing,
edges, and the memory behind (the run itself). All in GFLOP/s. `needed` is what a ratio over
OpenBLAS would ask for, as a share of the peak: nothing can be had above 100%.
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.kernels.threads import best_steps
from tilewise.bench.machine import processor
from tilewise.kernels.native import lower
from tilewise.kernels.native.executable import KernelCall
from tilewise.kernels.native.microbench import bandwidth_gbs, peak_gflops
from tilewise.kernels.oracle.operands import make_operands, poison
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Parallel, Register, Schedule, Step, Unroll
from tilewise.kernels.target import Target, resolve
from tilewise.search.peers import available_peers
from tilewise.search.peers.variant import Bench, right_ways
from tilewise.search.runner.child.session import Session
from tilewise.search.timing.measure import interleave

F32 = tuple(f"matmul:m={n},n={n},k={n},dtype=f32" for n in (256, 512, 1024, 2048))
I32 = ("matmul:m=1024,n=512,k=2048,dtype=i32", "matmul:m=16,n=1024,k=1024,dtype=i32")
ROUNDS = 25
FILLED = 0.75  # of a cache: the rest is C, the stack and what the prefetchers fetch too far
RATIO = 1.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=F32 + I32)
    parser.add_argument("--target", default="cpu:host")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--db", help="default: an empty one")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    target = resolve(options.target)
    bandwidth = bandwidth_gbs(target)
    print(f"{processor()}, {target.canonical}; memory {bandwidth:.0f} GB/s\n{HEADER}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        url = options.db or f"sqlite:///{folder}/results.db"
        for text in options.problems:
            steps = best_steps(text, target.canonical, options.trials, url)
            rows.append(limits(text, target, steps))
            print(line(rows[-1], bandwidth), flush=True)
    if options.out:
        found = {"processor": processor(), "target": target.canonical, "bandwidth_gbs": bandwidth}
        options.out.write_text(json.dumps(found | {"rows": rows}, indent=1) + "\n")


def limits(text: str, target: Target, steps: Any) -> dict[str, Any]:
    """GFLOP/s of a problem's best schedule, of its micro-kernel alone, and of OpenBLAS."""
    session = Session(text, target.canonical, seed=0)
    problem, ops = session.problem, session.operands
    dtype = problem.element.name
    calls = {"run": (session.call(steps), problem.flops)}
    session.check(calls["run"][0], steps)
    schedule = Schedule.from_json(steps)
    for level, size in (("l1", target.l1_bytes), ("l2", target.l2_bytes)):
        calls[level] = micro_kernel(schedule, dtype, target, int(size * FILLED))
    bench = Bench(problem, ops, session.expected, session.initial, target.threads)
    peers = right_ways(available_peers(problem, ops, target.threads), bench)
    before = peak_gflops(target, dtype)
    runs = [call for call, _ in calls.values()] + [way.run for way in peers]
    times = [median(one.times) for one in interleave(runs, ROUNDS, target.threads)]
    flops = [flops for _, flops in calls.values()] + [problem.flops] * len(peers)
    speeds = [f / seconds / 1e9 for f, seconds in zip(flops, times, strict=True)]
    return {
        "problem": text,
        "bytes": problem.bytes,
        "flops": problem.flops,
        "peak": max(before, peak_gflops(target, dtype)),
        **dict(zip(calls, speeds, strict=False)),
        "openblas": max(speeds[len(calls) :], default=None),
    }


def micro_kernel(
    schedule: Schedule, dtype: str, target: Target, room_bytes: int
) -> tuple[KernelCall, int]:
    """A schedule's register tile on one packed panel of B, and its flops; checked once.

    Rows of A and the panel share `room_bytes` evenly, so that the panel is read from that
    level over and over, once for each tile of rows.
    """
    register = next(step for step in schedule.steps if isinstance(step, Register))
    unroll = [step for step in schedule.steps if isinstance(step, Unroll)]
    size = target.vector_bytes // target.lanes(dtype)
    depth = max(64, room_bytes // 2 // (register.cols * size) // 64 * 64)
    tiles = max(1, room_bytes // 2 // (depth * size) // register.rows)
    parallel: list[Step] = [Parallel("m", target.threads)] if target.threads > 1 else []
    problem = parse_problem(
        f"matmul:m={tiles * register.rows * target.threads},n={register.cols},k={depth},"
        f"dtype={dtype},weights=constant"
    )
    alone = Schedule((*parallel, Pack("B"), register, *unroll))
    operands = make_operands(problem, 0)
    call = lower(problem, alone, target).bind(operands)
    poison(operands["C"])
    call()
    error, tolerance = compare(problem, operands["C"], reference(problem, operands))
    if not error <= tolerance:
        raise SystemExit(f"{problem}: the deviation is {error:.3g}, allowed is {tolerance:.3g}")
    return call, problem.flops


HEADER = (
    f"{'problem':<42} {'peak':>6} {'bytes':>7} {'in L1':>6} {'in L2':>6} {'run':>6} {'of peak':>7} "
    f"{'OpenBLAS':>9} {'of peak':>7} {'ratio':>6} {f'needed for {RATIO}':>15}"
)


def line(row: dict[str, Any], bandwidth: float) -> str:
    peak, blas = row["peak"], row["openblas"]
    by_bytes = row["flops"] / row["bytes"] * bandwidth
    start = (
        f"{row['problem']:<42} {peak:>6.1f} {by_bytes:>7.0f} {row['l1']:>6.1f} {row['l2']:>6.1f} "
        f"{row['run']:>6.1f} {row['run'] / peak:>7.1%}"
    )
    if blas is None:
        return start
    return (
        f"{start} {blas:>9.1f} {blas / peak:>7.1%} {row['run'] / blas:>6.2f} "
        f"{RATIO * blas / peak:>15.1%}"
    )


if __name__ == "__main__":
    main()
