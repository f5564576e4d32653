"""The committed results of all suites, summed up beside what was to be reached.

    python -m benchmarks.peers.bars

Ratios are to the best peer of each problem. Where the best peer works on a narrower
result (bf16 for f32), that is the ratio too.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from typing import Any

from benchmarks.places import RESULTS

Row = dict[str, Any]


@dataclass(frozen=True)
class Bar:
    """What a group of problems has to reach: `least` of the figure that `sums` makes."""

    name: str
    suite: str
    kind: str
    least: float
    takes: Callable[[Row], bool] = lambda row: True


def _dtype(*names: str) -> Callable[[Row], bool]:
    return lambda row: any(f"dtype={name}" in row["problem"].split(",") for name in names)


def _tokens(dtype: str) -> Callable[[Row], bool]:
    return lambda row: "matmul:m=128," in row["problem"] and _dtype(dtype)(row)


def _large(row: Row) -> bool:
    return _dtype("f32")(row) and row["problem"].startswith(("matmul:m=1024", "matmul:m=2048"))


def _several(dtype: str) -> Callable[[Row], bool]:
    """Several tokens."""
    return lambda row: _dtype(dtype)(row) and "matmul:m=1," not in row["problem"]


def _cached(row: Row) -> bool:
    """Vectors times matrices that the last cache holds."""
    return _dtype("f32")(row) and "n=8192" not in row["problem"]


BARS = (
    Bar("resnet50", "resnet50", "weighted", 1.35),
    Bar("bert-base", "bert_base", "weighted", 1.10),
    Bar("deepbench-device", "deepbench_device", "geomean", 1.15),
    Bar("square f32, each", "square", "least", 1.05, _dtype("f32")),
    Bar("square f32 1024 and 2048, share of peak", "square", "peak", 0.92, _large),
    Bar("square bf16", "square", "geomean", 1.03, _dtype("bf16")),
    Bar("square i8", "square", "geomean", 1.03, _dtype("i8")),
    Bar("square f64", "square", "geomean", 1.03, _dtype("f64")),
    Bar("i32 background, each", "background", "least", 1.5, _dtype("i32")),
    Bar("i32 background, share of peak", "background", "peak", 0.85, _dtype("i32")),
    Bar("mobilenet-v2 depthwise, oneDNN", "mobilenet_v2_depthwise", "onednn", 2.0),
    Bar("the same, cold caches", "mobilenet_v2_depthwise_cold", "onednn", 2.5),
    Bar("decode bf16, m=2, 4, 8", "decode", "onednn", 3.0, _several("bf16")),
    Bar("decode f32 in the caches", "decode", "geomean", 1.15, _cached),
    Bar("llama-7b bf16, m=128", "llama7b", "geomean", 1.08, _tokens("bf16")),
    Bar("llama-7b i8, m=128", "llama7b", "geomean", 1.08, _tokens("i8")),
)


def main() -> None:
    print(f"{'what':<42} {'problems':>8} {'reached':>8} {'bar':>6}")
    for bar in BARS:
        rows = [row for row in load(bar.suite) if bar.takes(row) and row["ratio"] is not None]
        reached = figure(bar.kind, rows) if rows else float("nan")
        print(f"{bar.name:<42} {len(rows):>8} {reached:>8.3f} {bar.least:>6.2f}")
    behind = [
        (row["ratio"], row["problem"], row["oracle"]["peer"])
        for path in sorted(RESULTS.glob("*.json"))
        for row in json.loads(path.read_text()).get("problems", ())
        if row["ratio"] is not None and row["ratio"] < 0.95
    ]
    print(f"\nbelow 0.95x of the best peer: {len(behind) or 'none'}")
    for ratio, problem, peer in sorted(behind):
        print(f"  {ratio:.2f}x {peer:<9} {problem}")


def load(suite: str) -> list[Row]:
    """The rows of a suite's committed result."""
    rows: list[Row] = json.loads((RESULTS / f"{suite}.json").read_text())["problems"]
    return rows


def figure(kind: str, rows: list[Row]) -> float:
    """A group's figure: by time and count, as a geometric mean, or of its least problem.

    A peer's name is the geometric mean over that peer alone.
    """
    if kind == "weighted":
        ours = sum(row["count"] * row["ours"]["time_us"] for row in rows)
        return sum(row["count"] * row["ours"]["time_us"] * row["ratio"] for row in rows) / ours
    if kind == "geomean":
        return exp(sum(log(row["ratio"]) for row in rows) / len(rows))
    if kind == "onednn":
        ratios = [row["ours"]["gflops"] / row["peers"][kind]["gflops"] for row in rows]
        return exp(sum(map(log, ratios)) / len(ratios))
    if kind == "peak":
        return min(float(row["ours"]["peak_fraction"]) for row in rows)
    return min(float(row["ratio"]) for row in rows)


if __name__ == "__main__":
    main()
