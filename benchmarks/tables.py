"""README's table of results and a page for each machine, made of the stored results.

    python -m benchmarks.tables [--write]

Prints README's table; with `--write`, puts it between its two marker lines and writes a page into
each machine's folder. README shows the machine that was measured last, of those with all its rows.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.declared import TABLES
from benchmarks.places import DOCS, RESULTS
from benchmarks.results import stamps

README = DOCS.parent / "README.md"
PAGE = "README.md"
BEGIN = "<!-- results: begin, made by python -m benchmarks.tables -->"
END = "<!-- results: end -->"
HEAD = (
    "| suite | problems | best peers | geometric mean | by time | least |",
    "|---|---|---|---|---|---|",
)

Json = dict[str, Any]


def _has(*parts: str) -> Callable[[str], bool]:
    """Return a test for problems whose string has all of these."""
    return lambda problem: all(f"{part}," in f"{problem}," for part in parts)


@dataclass(frozen=True)
class Row:
    """A row of the table: groups of problems of a suite, whose figures share the cells."""

    title: str
    suite: str
    groups: tuple[Callable[[str], bool], ...] = (_has(),)


def _tokens(dtype: str) -> tuple[Callable[[str], bool], ...]:
    return tuple(_has(f"matmul:m={m}", f"dtype={dtype}") for m in (1, 16, 128))


ROWS = (
    Row("square, 256 to 2048, f32", "square", (_has("dtype=f32"),)),
    Row("the same, bf16", "square", (_has("dtype=bf16"),)),
    Row("the same, i8", "square", (_has("dtype=i8"),)),
    Row("ResNet-50, f32 convolutions", "resnet50"),
    Row("BERT base, 128 tokens, f32", "bert_base"),
    Row("MobileNetV2, depthwise f32", "mobilenet_v2_depthwise"),
    Row("LLaMA-7B, 1 / 16 / 128 tokens, bf16", "llama7b_layers", _tokens("bf16")),
    Row("the same, i8", "llama7b_layers", _tokens("i8")),
)


def line(row: Row, folder: Path) -> str:
    """Return a row of the table: our speed over the best peer's."""
    found = json.loads((folder / f"{row.suite}.json").read_text())["problems"]
    groups = [
        [one for one in found if takes(one["problem"]) and one["ratio"] is not None]
        for takes in row.groups
    ]
    problems = [one for group in groups for one in group]
    means = [exp(sum(log(one["ratio"]) for one in group) / len(group)) for group in groups]
    leasts = [min(one["ratio"] for one in group) for group in groups]
    cells = (
        row.title,
        str(len(problems)),
        _best_peers(problems),
        _joined(means),
        _joined([_by_time(group) for group in groups]),
        _joined(leasts),
    )
    return f"| {' | '.join(cells)} |"


def _joined(figures: list[float]) -> str:
    return " / ".join(f"{figure:.2f}" for figure in figures)


def _best_peers(problems: list[Json]) -> str:
    counted = Counter(one["oracle"]["peer"] for one in problems)
    if len(counted) == 1:
        return str(next(iter(counted)))
    return ", ".join(f"{peer} {count}" for peer, count in counted.most_common())


def _by_time(problems: list[Json]) -> float:
    """Return the best peers' time for all problems over ours, each as often as its suite has it."""
    ours = sum(one["count"] * one["ours"]["time_us"] for one in problems)
    theirs = sum(one["count"] * one["peers"][one["oracle"]["peer"]]["time_us"] for one in problems)
    return float(theirs / ours)


def measured(folder: Path) -> str:
    """Return the line that says where, when and by which version a machine's rows were made."""
    made = [stamp for name, stamp in stamps(folder).items() if name in NEEDED]
    versions = ", ".join(sorted({f"{one.generator} ({one.commit})" for one in made}))
    target = made[0].processor.replace(",features=", ", features ")
    return f"`{target}`, {max(one.date for one in made)[:10]}, generator {versions}"


NEEDED = {table.name: table.files for table in TABLES if table.in_readme}


def is_complete(folder: Path) -> bool:
    """Return whether a machine has every table of README with its stamp."""
    files = [name for names in NEEDED.values() for name in names]
    return stamps(folder).keys() >= NEEDED.keys() and all((folder / one).exists() for one in files)


def newest() -> Path:
    """Return the complete machine that was measured last."""
    complete = [folder for folder in machines() if is_complete(folder)]
    if not complete:
        raise SystemExit(f"{RESULTS}: no machine has all tables of README; run `make results`")
    return max(complete, key=lambda one: max(stamps(one)[name].date for name in NEEDED))


def machines() -> list[Path]:
    """Return the folders of all machines that have results."""
    return sorted(path for path in RESULTS.iterdir() if path.is_dir() and any(path.iterdir()))


def block() -> str:
    """Return README's table between its marker lines."""
    folder = newest()
    where = f"One core of {measured(folder)}; `make results` measures it again."
    return "\n".join([BEGIN, where, "", *HEAD, *(line(row, folder) for row in ROWS), END])


def page(folder: Path) -> str:
    """Return a machine's page: the rows that it has, and every table with its command."""
    rows = [line(row, folder) for row in ROWS if (folder / f"{row.suite}.json").exists()]
    where = measured(folder) if is_complete(folder) else "earlier versions"
    known = stamps(folder)
    lines = [f"# {folder.name}", "", f"Made by `python -m benchmarks.tables`. {where}", ""]
    lines += ["Speed over the best peer of each problem, in the same rounds:", "", *HEAD, *rows, ""]
    lines += ["| table | command | generator | date |", "|---|---|---|---|"]
    for table in TABLES:
        if (folder / table.files[0]).exists():
            one = known.get(table.name)
            made = ("", "earlier", "")
            if one:
                made = f"`{one.command}`", one.generator, one.date[:10]
            lines.append(f"| [{table.name}]({table.files[0]}) | {' | '.join(made)} |")
    return "\n".join(lines) + "\n"


def written(text: str) -> str:
    """Return a README with the table of the stored results in place of the one that it has."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"README.md lacks the line {BEGIN if not rest else END}")
    return f"{before}{block()}{after}"


def main() -> int:
    """Print README's table, or write it and the machines' pages."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="into README.md and the pages")
    if not parser.parse_args().write:
        print(block())
        return 0
    README.write_text(written(README.read_text()))
    for folder in machines():
        (folder / PAGE).write_text(page(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
