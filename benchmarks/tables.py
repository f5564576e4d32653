"""README's table of results, from the committed ones.

    python -m benchmarks.tables [--write]

Prints the table; with `--write` it goes into README.md between its two marker lines. A test holds
the two equal.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from typing import Any

from benchmarks.places import DOCS, RESULTS
from tilewise.kernels.system.toolchain import generator_hash

README = DOCS.parent / "README.md"
BEGIN = "<!-- results: begin, made by python -m benchmarks.tables -->"
END = "<!-- results: end -->"

Json = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """A line of the table: the problems of a suite that `takes` says are of it."""

    title: str
    suite: str
    takes: Callable[[str], bool] = lambda _problem: True


def _of(*parts: str) -> Callable[[str], bool]:
    """Problems that have all of these in their string."""
    return lambda problem: all(f"{part}," in f"{problem}," for part in parts)


ROWS = (
    Row("ResNet-50, f32 convolutions", "resnet50"),
    Row("BERT base, f32", "bert_base"),
    Row("DeepBench device, f32", "deepbench_device"),
    Row("square 256 to 2048, f32", "square", _of("dtype=f32")),
    Row("square, bf16", "square", _of("dtype=bf16")),
    Row("square, i8", "square", _of("dtype=i8")),
    Row("square, f64", "square", _of("dtype=f64")),
    Row("i32 GEMMs of MLIR-AIR", "background", _of("dtype=i32")),
    Row("MobileNetV2, depthwise f32", "mobilenet_v2_depthwise"),
    Row("LLaMA 7B, 128 tokens, bf16", "llama7b", _of("matmul:m=128", "dtype=bf16")),
    Row("LLaMA 7B, 128 tokens, i8", "llama7b", _of("matmul:m=128", "dtype=i8")),
    Row("LLaMA 7B, 16 tokens, bf16", "llama7b", _of("matmul:m=16", "dtype=bf16")),
    Row("LLaMA 7B, 16 tokens, i8", "llama7b", _of("matmul:m=16", "dtype=i8")),
    Row("LLaMA 7B, 1 to 8 tokens, bf16", "decode", _of("dtype=bf16")),
    Row("LLaMA 7B, 1 and 4 tokens, i8", "decode", _of("dtype=i8")),
)


def line(row: Row) -> str:
    """One row: how many problems, and our speed over the best peer's."""
    found = json.loads((RESULTS / f"{row.suite}.json").read_text())
    problems = [p for p in found["problems"] if row.takes(p["problem"]) and p["ratio"] is not None]
    ratios = [p["ratio"] for p in problems]
    mean = exp(sum(map(log, ratios)) / len(ratios))
    cells = (
        row.title,
        str(len(problems)),
        f"{mean:.2f}",
        f"{_by_time(problems):.2f}",
        f"{min(ratios):.2f}",
        version(found["machine"]["toolchain"]),
    )
    return f"| {' | '.join(cells)} |"


def _by_time(problems: list[Json]) -> float:
    """The best peer's time for all of them over ours, each as often as its suite has it."""
    ours = sum(p["count"] * p["ours"]["time_us"] for p in problems)
    theirs = sum(p["count"] * p["peers"][p["oracle"]["peer"]]["time_us"] for p in problems)
    return float(theirs / ours)


def version(toolchain: str) -> str:
    """Whether results are of this version's generator, as a cell."""
    generator = toolchain.rpartition("generator ")[2]
    return "this one" if generator == generator_hash() else f"earlier ({generator})"


def block() -> str:
    """The table, between its marker lines."""
    head = "| suite | problems | ratio, geometric mean | by time | least | version |"
    return "\n".join([BEGIN, head, "|---|---|---|---|---|---|", *map(line, ROWS), END])


def written(text: str) -> str:
    """A README with the table of the committed results in place of the one that it has."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"README.md lacks the line {BEGIN if not rest else END}")
    return f"{before}{block()}{after}"


def main() -> int:
    """Print the table, or write it into README.md."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="into README.md")
    if parser.parse_args().write:
        README.write_text(written(README.read_text()))
    else:
        print(block())
    return 0


if __name__ == "__main__":
    sys.exit(main())
