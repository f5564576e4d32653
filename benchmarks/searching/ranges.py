"""What one tuning of a range loses against tuning single sizes, and how it compares with peers.

    python -m benchmarks.searching.ranges [RANGE ...] [--sizes 25] [--trials 16]

The samples of each range are searched, and variants are chosen. Then sizes between the samples are
drawn and tuned alone, with as many trials. A fresh process times the variant, the schedule of the
size's own search in interleaved rounds, and then the variant and the peers, each compared with the
reference. The ratios are speeds of the variant over those of the others.
"""

import argparse
import random
import time
from math import exp, log
from statistics import fmean, median

from benchmarks.memory_store import MemoryStore
from benchmarks.report import conditions
from tilewise.kernels.problem import Problem, ProblemRange, parse_range, sizes_text
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import detect
from tilewise.search.engine.tune import tune
from tilewise.search.final_benchmark.rounds import rounds_of
from tilewise.search.ranges.result import RangeResult
from tilewise.search.ranges.samples import finalists_of, sample_sizes
from tilewise.search.ranges.tune import tune_range
from tilewise.search.records import Solved, TuneRequest, time_us
from tilewise.search.runner.runner import Runner

RANGES = tuple(
    f"matmul:m=1..256,n=4096,k=4096,{types},weights=constant"
    for types in ("dtype=f32", "dtype=bf16", "dtype=bf16,b=i4,group=128")
)
ROUNDS, PLACEMENTS = 9, 3
PEERS, PEERS_S = ("openblas", "onednn", "onnxruntime"), 2.0


def fastest(problem: Problem, request: TuneRequest, earlier: list[Solved]) -> list[Schedule]:
    """Return the finalists of a problem after a search, which is added to `earlier`."""
    found = tune(problem, detect(), request, MemoryStore(earlier))
    assert found.best is not None
    earlier.insert(0, Solved.of(problem, detect().canonical, found.trials))
    timed = sorted((trial for trial in found.trials if trial.measurement), key=time_us)
    ranked = [found.best.schedule, *(trial.schedule for trial in timed)]
    return finalists_of(one for one in ranked if isinstance(one, Schedule))


def tuned(problems: ProblemRange, request: TuneRequest) -> RangeResult:
    """Return the variants of a range, found as a job of a service finds them in an empty store."""
    sizes, earlier = sample_sizes(problems), list[Solved]()
    finalists = {size: fastest(problems.at(size), request, earlier) for size in sizes}
    return tune_range(problems, detect(), request, finalists)


def speeds(problem: Problem, variant: Schedule, own: Schedule) -> tuple[float, float | None]:
    """Return the speed of a variant over that of another schedule, and over the fastest peer's."""
    steps = [list(each.to_json()) for each in (variant, own)]
    with Runner(problem, detect().canonical) as runner:
        reply = runner.time_finalists(steps, ROUNDS, peers=False, placements=PLACEMENTS)
        present = [peer for peer in PEERS if runner.peer(peer).absent is None]
        beside = runner.time_with_peers(steps[0], present, PEERS_S)
    mine, others = rounds_of(reply).standings
    peers = [median(way.times) for way in beside.ways]
    return exp(others - mine), min(peers) / median(beside.times) if peers else None


def measure(problems: ProblemRange, count: int, request: TuneRequest) -> None:
    """Tune a range and print a row for each of `count` sizes between its samples."""
    begin = time.monotonic()
    result = tuned(problems, request)
    took = time.monotonic() - begin
    print(f"\n{problems}: {len(result.schedule.variants)} variants of samples ", end="")
    print(f"{sample_sizes(problems)}, {took:.0f} s; loss there {result.loss.geometric_mean:.1%}")
    print(f"{'size':>12} {'variant':>7} {'of own search':>13} {'of fastest peer':>15}")
    left = sorted(set(problems.sizes) - set(sample_sizes(problems)))
    sizes = sorted(random.Random(0).sample(left, min(count, len(left))))
    of_own, of_peers = list[float](), list[float]()
    for size in sizes:
        own = fastest(problems.at(size), request, [])[0]
        variant = result.schedule.choice[problems.sizes.index(size)]
        ratio, of_peer = speeds(problems.at(size), result.schedule.variants[variant], own)
        of_own.append(ratio)
        of_peers += [] if of_peer is None else [of_peer]
        shown = "-" if of_peer is None else f"{of_peer:.2f}"
        text = sizes_text(problems.dims, size, size)
        print(f"{text:>12} {variant:>7} {ratio:>13.3f} {shown:>15}", flush=True)
    for name, ratios in ("own search", of_own), ("fastest peer", of_peers):
        if ratios:
            mean = exp(fmean(map(log, ratios)))
            print(f"over {name}: geometric mean {mean:.3f}, least {min(ratios):.3f}")
    alone = (time.monotonic() - begin - took) / max(1, len(sizes))
    print(f"tuning the range took {took:.0f} s; a single size and its comparison {alone:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ranges", nargs="*", default=RANGES)
    parser.add_argument("--sizes", type=int, default=25)
    parser.add_argument("--trials", type=int, default=16)
    options = parser.parse_args()
    print(conditions())
    for text in options.ranges:
        measure(parse_range(text), options.sizes, TuneRequest(trials=options.trials, peers=False))


if __name__ == "__main__":
    main()
