"""Products that read a matrix once, beside plain reads of that matrix in the same rounds.

    python -m benchmarks.kernels.streaming [PROBLEM ...] [--trials 48] [--peers] [--db URL]
        [--out FILE.json]

The best schedule (searched for where the database has none) is timed in one process with loops
that load every vector of the same matrix once and do nothing else, on 1 to 16 streams; the fastest
of these is `read`. Speeds are bytes of the matrix over the median time, in GB/s, so that `share` is
100% for a product that costs nothing beside its reads, and more where it begins at the end that a
nearer cache still has: the reads begin at the first byte. `peer`, where asked for, is the fastest
of OpenBLAS and oneDNN (through PyTorch) in these rounds.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.kernels.threads import best_steps
from tilewise.bench.machine import processor
from tilewise.kernels.native.microbench import reader
from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.oracle.reference import Expected
from tilewise.kernels.problem import Problem
from tilewise.kernels.problem.model import Matmul
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target, resolve
from tilewise.search.peers.screen import MAKERS, screened
from tilewise.search.peers.variant import Bench, PeerAbsentError
from tilewise.search.runner.child.session import Session
from tilewise.search.timing.measure import interleave

DECODING = [
    f"matmul:m=1,n={n},k={k},dtype={dtype}{transposed}"
    for n, k in ((4096, 4096), (11008, 4096), (4096, 11008))
    for dtype in ("bf16", "i8", "f16", "f32", "i32", "f64")
    for transposed in ("", ",transpose_b")
]
COLUMNS = ["matmul:m=11008,n=1,k=4096,dtype=f32", "matmul:m=11008,n=1,k=4096,dtype=bf16"]
CACHED = [
    f"matmul:m={m},n={n},k={k},dtype=f32"
    for m, n, k in ((1, 400, 500), (400, 1, 500), (1, 1000, 1000), (1000, 1, 1000),
                    (1, 512, 4096), (4096, 1, 512))
]  # fmt: skip
STREAMS = (1, 2, 4, 8, 16)
ROUNDS = 21

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*", default=DECODING + COLUMNS + CACHED)
    parser.add_argument("--target", default="cpu:host")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--peers", action="store_true", help="beside OpenBLAS and oneDNN")
    parser.add_argument("--db", help="default: an empty one")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    target = resolve(options.target)
    print(f"{processor()}, {target.canonical}\n\n{HEADER}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        url = options.db or f"sqlite:///{folder}/results.db"
        for text in options.problems:
            steps = best_steps(text, target.canonical, options.trials, url)
            rows.append(measured(text, target, steps, options.peers))
            print(line(rows[-1]), flush=True)
    if options.out:
        found = {"processor": processor(), "target": target.canonical, "rows": rows}
        options.out.write_text(json.dumps(found, indent=1) + "\n")


def measured(text: str, target: Target, steps: Any, with_peers: bool = False) -> Row:
    """GB/s of the schedule and of the reads, each a median over the same rounds."""
    session = Session(text, target.canonical, seed=0)
    problem = session.problem
    assert isinstance(problem, Matmul)
    call = session.call(steps)
    session.check(call, steps)
    matrix = session.operands["A" if problem.n == 1 else "B"]
    reads = [reading(target, matrix, streams) for streams in STREAMS]
    peers = fastest_peers(problem, session.operands, session.expected) if with_peers else []
    timed = interleave([call, *reads, *peers], ROUNDS, target.threads)
    ours, *rest = (matrix.nbytes / median(samples.times) / 1e9 for samples in timed)
    others, theirs = rest[: len(reads)], rest[len(reads) :]
    return {
        "problem": problem.canonical,
        "schedule": "; ".join(map(str, Schedule.from_json(steps).steps)),
        "megabytes": matrix.nbytes / 1e6,
        "ours": ours,
        "read": max(others),
        "streams": STREAMS[others.index(max(others))],
        "peer": max(theirs, default=None),
    }


def reading(target: Target, matrix: Any, streams: int) -> Callable[[int], None]:
    """A run, so many times, of the loop that reads a matrix on so many streams."""
    read, address = reader(target, streams), matrix.ctypes.data
    steps = matrix.nbytes // (streams * target.vector_bytes)

    def run(times: int = 1) -> None:
        for _ in range(times):
            read(address, steps)

    return run


def fastest_peers(problem: Problem, operands: Operands, expected: Expected) -> list[Any]:
    """Runs of the ways of oneDNN and OpenBLAS that are right and not clearly slower."""
    bench, runs = Bench(problem, operands, expected, operands["C"].copy(), 1), []
    for name in ("onednn", "openblas"):
        try:
            runs += [timed.variant.run for timed in screened(MAKERS[name], bench)]
        except PeerAbsentError:
            continue
    return runs


HEADER = (
    f"{'problem':<52} {'MB':>6} {'ours':>6} {'read':>6} {'streams':>7} {'share':>6} {'peer':>6} "
    f"{'/peer':>5} {'peer/read':>9}"
)


def line(row: Row) -> str:
    peer = row["peer"]
    theirs = f" {peer:>6.1f} {row['ours'] / peer:>5.2f} {peer / row['read']:>9.0%}" if peer else ""
    return (
        f"{row['problem']:<52} {row['megabytes']:>6.1f} {row['ours']:>6.1f} {row['read']:>6.1f} "
        f"{row['streams']:>7} {row['ours'] / row['read']:>6.0%}{theirs}"
    )


if __name__ == "__main__":
    main()
