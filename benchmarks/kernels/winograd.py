"""Convolutions by Winograd transforms: beside the direct method and oneDNN, and how accurate.

    python -m benchmarks.kernels.winograd [PROBLEM ...] [--filters square3|others|strided]
        [--trials 64] [--no-errors] [--db URL] [--out FILE.json]

`square3` are 3x3 filters, `others` those of 5x5, of one dimension, and of unequal sides; `strided`
are those of stride 2.
Each problem is searched for twice, with accuracy=standard and strict, and the winners and every way
of oneDNN are timed in the same interleaved rounds of one process. `limit` is of the tiles, of all
that a search may choose, that allow most: their products at the peak of multiply-adds, and their
transforms at the speed at which this core copies lines within its second cache; both are measured
in the run. Reads of a filter that was transformed ahead are not in it. Blocks that stay in the
first cache may come up to it. Speeds count the multiply-adds of the direct method.

The second table has rms errors against float64, those of the direct method relative to the result
and the others in multiples of it. Of other filters it has the largest of all kinds of operands, for
each number of input channels.
"""

import argparse
import ctypes
import json
import tempfile
import time
from math import exp, log, prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.kernels.threads import best_steps
from tilewise.bench.machine import processor
from tilewise.kernels.fast_algorithms import outputs_for, winograd_transforms
from tilewise.kernels.native.jit.loading import load
from tilewise.kernels.native.microbench import peak_gflops
from tilewise.kernels.native.plan import plan
from tilewise.kernels.nest import count
from tilewise.kernels.oracle.accuracy import KINDS
from tilewise.kernels.oracle.operands import empty_aligned
from tilewise.kernels.problem import Conv2d, Problem, parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Winograd, chosen, loop_nest
from tilewise.kernels.target import Target, resolve
from tilewise.search.peers.screen import MAKERS, screened
from tilewise.search.peers.variant import Bench, PeerAbsentError
from tilewise.search.runner.child.accuracy import direct_errors, errors_of
from tilewise.search.runner.child.session import Session
from tilewise.search.space.algorithms import (
    ALGORITHM,
    LEAST_CHANNELS,
    LEAST_CHANNELS_OF_STRIDED,
    algorithm_of,
    algorithms_of,
)
from tilewise.search.space.workload import Workload
from tilewise.search.timing.measure import interleave

SIZES = (
    "n=1,h=56,w=56,ci=64,co=64",
    "n=1,h=28,w=28,ci=128,co=128",
    "n=1,h=14,w=14,ci=256,co=256",
    "n=5,h=80,w=100,ci=128,co=128",
)
OTHER_SIZES = (
    "n=1,h=28,w=28,ci=96,co=128,kh=5,kw=5,pad=2",
    "n=1,h=35,w=35,ci=64,co=64,kh=5,kw=5,pad=2",
    "n=1,h=8,w=8,ci=128,co=128,kh=5,kw=5,pad=2",
    "n=1,h=17,w=23,ci=192,co=192,kh=1,kw=7",
    "n=1,h=23,w=17,ci=192,co=192,kh=7,kw=1",
    "n=1,h=28,w=32,ci=128,co=128,kh=1,kw=5",
    "n=1,h=56,w=58,ci=64,co=64,kh=1,kw=3",
    "n=1,h=10,w=8,ci=384,co=384,kh=3,kw=1",
    "n=1,h=17,w=19,ci=192,co=192,kh=1,kw=3",
    "n=1,h=30,w=32,ci=128,co=128,kh=3,kw=5",
    "n=1,h=10,w=12,ci=128,co=128,kh=3,kw=5",
    "n=1,h=30,w=34,ci=128,co=128,kh=3,kw=7",
    "n=1,h=32,w=34,ci=128,co=128,kh=5,kw=7",
)
"""Pad is that of both axes; what one-dimensional filters have along theirs lies in the image."""
STRIDED_SIZES = (
    "n=1,h=56,w=56,ci=128,co=128,kh=3,kw=3,stride=2,pad=1",
    "n=1,h=28,w=28,ci=256,co=256,kh=3,kw=3,stride=2,pad=1",
    "n=1,h=35,w=35,ci=288,co=384,kh=3,kw=3,stride=2",
    "n=1,h=56,w=56,ci=64,co=128,kh=5,kw=5,stride=2,pad=2",
)


def _problems(sizes: tuple[str, ...]) -> tuple[str, ...]:
    kinds = (",weights=constant", "")
    return tuple(f"conv2d:{size},dtype=f32{weights}" for weights in kinds for size in sizes)


PROBLEMS = {
    "square3": _problems(tuple(f"{size},kh=3,kw=3,pad=1" for size in SIZES)),
    "others": _problems(OTHER_SIZES),
    "strided": _problems(STRIDED_SIZES),
}
ROUNDS = 25
COPIED_BYTES = 256 << 10  # read and as many written: together half of a second cache
DEPTHS = (8, 16, 64, 128, 256, 512)
SQUARE3 = (3, 3)
FORMS = {
    "square3": {SQUARE3: tuple(LEAST_CHANNELS[SQUARE3])},
    "others": {taps: outputs_for(taps) for taps in LEAST_CHANNELS if taps != SQUARE3},
    "strided": {taps: tuple(offered) for taps, offered in LEAST_CHANNELS_OF_STRIDED.items()},
}
STRIDES = {"strided": 2}  # others have a stride of 1
"""The filters whose errors are measured, and with which outputs: of others every one there is."""

Row = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("problems", nargs="*")
    parser.add_argument("--filters", choices=tuple(PROBLEMS), default="square3")
    parser.add_argument("--target", default="cpu:host")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--errors", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--db", help="default: an empty one")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    target = resolve(options.target)
    print(f"{processor()}, {target.canonical}\n\n{HEADER}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        url = options.db or f"sqlite:///{folder}/results.db"
        for text in options.problems or PROBLEMS[options.filters]:
            rows.append(compared(text, target, options.trials, url))
            print(line(rows[-1]), flush=True)
    for said in means(rows):
        print(said)
    forms = FORMS[options.filters].items()
    stride = STRIDES.get(options.filters, 1)
    depths = DEPTHS if options.errors else ()
    errors = [accuracy(depth, *form, target, stride) for form in forms for depth in depths]
    print()
    for said in error_table(errors) if options.filters == "square3" else worst_table(errors):
        print(said)
    if options.out:
        found = {"processor": processor(), "target": target.canonical}
        options.out.write_text(
            json.dumps(found | {"rows": rows, "errors": errors}, indent=1) + "\n"
        )


def compared(text: str, target: Target, trials: int, url: str) -> Row:
    """GFLOP/s of the best schedule, of the best direct one and of oneDNN, and the limit."""
    problem = parse_problem(text)
    steps = {
        accuracy: best_steps(f"{text},accuracy={accuracy}", target.canonical, trials, url)
        for accuracy in ("standard", "strict")
    }
    session = Session(problem.canonical, target.canonical, seed=0)
    calls = {name: session.call(given) for name, given in steps.items()}
    for name, call in calls.items():
        session.check(call, steps[name])
    ways = _ways_of_onednn(session)
    before, copying = peak_gflops(target, problem.element.name), copied_gbs(target)
    timed = interleave([*calls.values(), *(way.run for way in ways)], ROUNDS, target.threads)
    times = [median(samples.times) for samples in timed]
    peak = max(before, peak_gflops(target, problem.element.name))
    speeds = [problem.flops / seconds / 1e9 for seconds in times]
    best = Schedule.from_json(steps["standard"])
    return {
        "problem": text,
        "schedule": str(best).replace("\n", "; "),
        "ours": speeds[0],
        "direct": speeds[1],
        "onednn": max(speeds[2:], default=None),
        "peak": peak,
        "copied_gbs": copying,
        "limit": problem.flops / least_of_all(problem, target, peak, copying) / 1e9,
    }


def _ways_of_onednn(session: Session) -> list[Any]:
    bench = Bench(
        session.problem, session.operands, session.expected, session.initial, session.target.threads
    )
    try:
        return [timed.variant for timed in screened(MAKERS["onednn"], bench)]
    except PeerAbsentError:
        return []


def least_of_all(problem: Problem, target: Target, peak: float, copying: float) -> float:
    """The least that any method of fewer products allows, operands transformed once.

    Of a problem that a search has no such method for it is what the direct one takes at the peak.
    """
    tile = {"register": (1, target.lanes(problem.element.name))}
    packed = {"pack_b": True, "pack_a": True}
    names = algorithms_of(Workload(problem, target))
    made = [algorithm_of({ALGORITHM: name}) | packed for name in names] or [{}]
    schedules = [Schedule(tuple(chosen(problem, one | tile).steps)) for one in made]
    return min(least_seconds(problem, schedule, peak, copying) for schedule in schedules)


def least_seconds(problem: Problem, schedule: Schedule, peak: float, copying: float) -> float:
    """Products at the peak, and the transforms' bytes at the speed of copies.

    A transform reads about as many bytes as it writes, or less: what is counted are the bytes that
    lie in scratch, and of the result those of C.
    """
    if schedule.algorithm is None:
        return problem.flops / peak / 1e9
    nest = loop_nest(problem, schedule)
    counts = count(nest)
    products = 2 * prod(nest.extents.values())
    moved = sum(counts.packed_bytes.values())
    return products / peak / 1e9 + 2 * moved / copying / 1e9


def copied_gbs(target: Target) -> float:
    """Bytes read and written a second by a copy of lines within the second cache."""
    problem = parse_problem("matmul:m=64,n=64,k=64,dtype=f32")
    packing = Schedule((Pack("B"), Pack("A"), Register(4, 2 * target.lanes("f32"))))
    piece = plan(problem, packing, target).kernel.pieces()["copy_rows"]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 6)(load(piece).addresses[0])
    source, to = (empty_aligned((COPIED_BYTES // 4,), np.float32) for _ in range(2))
    source.fill(1.0)
    to.fill(0.0)
    row, rows = 1024, COPIED_BYTES // 4096
    best = 1e9
    for _ in range(200):
        begin = time.perf_counter()
        function(to.ctypes.data, row, source.ctypes.data, row, rows, row)
        best = min(best, time.perf_counter() - begin)
    return 2 * COPIED_BYTES / best / 1e9


def accuracy(
    depth: int, taps: tuple[int, int], outputs: tuple[int, ...], target: Target, stride: int = 1
) -> Row:
    """The direct method's rms errors relative to the result's, and in them those of each tile."""
    size = "n=1,h=18,w=18,co=64,kh={},kw={},stride={}".format(*taps, stride)
    problem = parse_problem(f"conv2d:{size},ci={depth},dtype=f32")
    assert isinstance(problem, Conv2d)
    cols = 2 * target.lanes("f32")
    found: Row = {"depth": depth, "taps": list(taps), "stride": stride}
    found["direct"] = direct_errors(problem, target)
    for output in outputs:
        steps = Schedule((Winograd(output), Pack("B"), Pack("A"), Register(6, cols)))
        found[f"F{output}"] = errors_of(problem, steps, target)
    return found


def means(rows: list[Row]) -> list[str]:
    """Geometric means of the ratios over oneDNN and the direct method, by kind of weights."""
    said = []
    for kind in ("constant", "variable"):
        chosen = [row for row in rows if ("constant" in row["problem"]) == (kind == "constant")]
        for name in ("onednn", "direct"):
            ratios = [row["ours"] / row[name] for row in chosen if row[name]]
            if ratios:
                mean = exp(sum(map(log, ratios)) / len(ratios))
                said.append(f"geometric mean over {name}, weights {kind}: {mean:.2f}")
    return said


HEADER = (
    f"{'problem':<80} {'ours':>6} {'direct':>6} {'oneDNN':>6} {'over direct':>11} "
    f"{'over oneDNN':>11} {'limit':>6} {'of limit':>8}"
)
ERRORS_HEADER = f"{'channels':>8} {'method':<7}" + "".join(f"{kind:>10}" for kind in KINDS)


def line(row: Row) -> str:
    peer, over = row["onednn"], "-"
    if peer:
        over = f"{row['ours'] / peer:.2f}"
    return (
        f"{row['problem']:<80} {row['ours']:>6.0f} {row['direct']:>6.0f} "
        f"{f'{peer:.0f}' if peer else '-':>6} {row['ours'] / row['direct']:>11.2f} {over:>11} "
        f"{row['limit']:>6.0f} {row['ours'] / row['limit']:>8.0%}"
    )


def error_table(rows: list[Row]) -> list[str]:
    """The errors of one filter: every kind of operands, by the depth of the sums."""
    return [ERRORS_HEADER, *(said for row in rows for said in error_lines(row))]


def worst_table(rows: list[Row]) -> list[str]:
    """The errors of many filters: the largest of all kinds of operands, for every depth."""
    said = [f"{'filter':<7}{'output':>6}{'saves':>7}" + "".join(f"{depth:>7}" for depth in DEPTHS)]
    for taps in dict.fromkeys(tuple(row["taps"]) for row in rows):
        of_filter = [row for row in rows if tuple(row["taps"]) == taps]
        for name in (name for name in of_filter[0] if name.startswith("F")):
            tile = winograd_transforms(int(name[1:]), taps, of_filter[0].get("stride", 1))
            saves = prod(tile.output) * prod(taps) / tile.products
            worst = "".join(f"{max(row[name].values()):>7.2f}" for row in of_filter)
            said.append(f"{taps[0]}x{taps[1]:<5}{name[1:]:>6}{saves:>7.2f}{worst}")
    return said


def error_lines(row: Row) -> list[str]:
    direct = "".join(f"{row['direct'][kind]:>10.1e}" for kind in KINDS)
    others = {
        name: "".join(f"{row[name][kind]:>10.2f}" for kind in KINDS)
        for name in row
        if name.startswith("F")
    }
    filtered = [f"{'':>8} {name:<7}{errors}" for name, errors in others.items()]
    return [f"{row['depth']:>8} {'direct':<7}{direct}", *filtered]


if __name__ == "__main__":
    main()
