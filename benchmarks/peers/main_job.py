"""The main job on the problems it promises, each in a fresh process and an empty database.

    python -m benchmarks.peers.main_job [--trials 64] [--out FILE.json]

Prints, per problem: the tuned speed with its 95% interval, its share of the measured peak,
OpenBLAS from the same rounds, the proven script against the native kernel, the seconds the
whole job took, and the largest memory that its processes held together.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tilewise.bench.machine import processor

PROBLEMS = (
    "matmul:m=1024,n=1024,k=1024,dtype=f32",
    "matmul:m=1000,n=999,k=1001,dtype=f32",
    "matmul:m=4,n=1024,k=1024,dtype=f32",
    "matmul:m=1024,n=512,k=2048,dtype=f32",
    "matmul:m=1024,n=512,k=2048,dtype=i32",
    "matmul:m=1024,n=1024,k=1024,dtype=f64",
    "conv2d:n=5,h=82,w=102,ci=128,co=128,kh=3,kw=3,dtype=f32,bias,epilogue=relu",
    "conv2d:n=1,h=56,w=56,ci=64,co=64,kh=3,kw=3,pad=1,dtype=f32,bias,epilogue=relu",
)
WATCH_S = 0.05
PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--out", type=Path, help="also write the results as JSON")
    parser.add_argument("problems", nargs="*", default=PROBLEMS)
    options = parser.parse_args()
    rows = []
    print(HEADER)
    for problem in options.problems:
        row = run(problem, options.trials)
        rows.append(row)
        print(line(row), flush=True)
    if options.out:
        machine = {"processor": processor(), "cores": os.cpu_count(), "rows": rows}
        options.out.write_text(json.dumps(machine, indent=1) + "\n")


def run(problem: str, trials: int) -> dict[str, Any]:
    """Tune one problem in a process of its own and watch its memory."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tilewise", "tune", problem, "--peers", "--json"]
        command += ["--trials", str(trials), "--db", f"sqlite:///{folder}/results.db"]
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        peak = 0
        while process.poll() is None:
            peak = max(peak, tree_bytes(process.pid))
            time.sleep(WATCH_S)
        elapsed = time.monotonic() - begin
        assert process.stdout is not None
        if process.returncode:
            raise SystemExit(f"{problem}: exit code {process.returncode}")
        result: dict[str, Any] = json.loads(process.stdout.read())
    return result | {"wall_s": elapsed, "memory_bytes": peak}


def tree_bytes(pid: int) -> int:
    """Resident bytes of a process and all that descend from it."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        try:
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * PAGE
            for task in Path(f"/proc/{one}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except (OSError, IndexError):
            continue
    return total


HEADER = (
    f"{'problem':<82} {'GFLOP/s':>8} {'95% interval':>15} {'peak':>6} {'OpenBLAS':>9} {'ratio':>6} "
    f"{'script':>7} {'/native':>7} {'search s':>8} {'whole s':>8} {'MiB':>5}"
)


def line(row: dict[str, Any]) -> str:
    best, proof = row["best"], row["proof"]
    blas = row["peers"].get("openblas", {}).get("gflops")
    script = proof["gflops"] if proof and not proof["failure"] else None
    low, high = best["interval"]
    return (
        f"{row['problem']:<82} {best['gflops']:>8.1f} {f'{low:.1f}-{high:.1f}':>15} "
        f"{best['peak_fraction']:>6.1%} {number(blas, 9)} "
        f"{number(blas and best['gflops'] / blas, 6, 2)} {number(script, 7)} "
        f"{number(script and script / best['gflops'], 7, 2)} {row['elapsed_s']:>8.1f} "
        f"{row['wall_s']:>8.1f} {row['memory_bytes'] >> 20:>5}"
    )


def number(value: float | None, width: int, digits: int = 1) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"


if __name__ == "__main__":
    main()
