"""The table of `benchmarks.peers.main_job` as a picture.

    python -m benchmarks.peers.plot benchmarks/data/results/main_job.json docs/main_job.svg

One row per problem: OpenBLAS, the proven script, and the native kernel as shares of the
multiply-add peak that was measured in the same run.
"""

import argparse
import json
from html import escape
from pathlib import Path
from typing import Any

LEFT, WIDTH, ROW, BAR, TOP = 330, 560, 62, 14, 46
LONGEST = 44  # characters of a problem that fit on a line
COLOURS = {"OpenBLAS": "#9aa5b1", "script": "#5b8dd9", "native": "#1f4e9c"}
TEXT = 'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="12" fill="#222"'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    found = json.loads(options.results.read_text())
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(draw(found))


def draw(found: dict[str, Any]) -> str:
    """The whole picture as SVG."""
    height = TOP + ROW * len(found["rows"]) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 70} {height}">',
        '<rect width="100%" height="100%" fill="white"/>',
        *legend(),
        *axis(height),
    ]
    for index, row in enumerate(found["rows"]):
        parts += bars(row, TOP + ROW * index)
    parts.append(f'<text x="8" y="{height - 8}" {TEXT}>{escape(caption(found))}</text></svg>\n')
    return "\n".join(parts)


def caption(found: dict[str, Any]) -> str:
    return f"{found['processor']}, one core; share of the measured multiply-add peak; GFLOP/s"


def legend() -> list[str]:
    parts, x = [], LEFT
    for name, colour in COLOURS.items():
        parts.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="22" {TEXT}>{name}</text>')
        x += 130
    return parts


def axis(height: int) -> list[str]:
    lines = []
    for percent in range(0, 101, 20):
        x = LEFT + WIDTH * percent / 100
        lines.append(
            f'<line x1="{x}" x2="{x}" y1="{TOP - 6}" y2="{height - 28}" stroke="#ddd"/>'
            f'<text x="{x - 10}" y="{TOP - 10}" {TEXT}>{percent}%</text>'
        )
    return lines


def bars(row: dict[str, Any], y: int) -> list[str]:
    """The bars of one problem, slowest peer first."""
    peak = row["best"]["gflops"] / row["best"]["peak_fraction"]
    speeds = {
        "OpenBLAS": row["peers"].get("openblas", {}).get("gflops"),
        "script": row["proof"]["gflops"] if row["proof"] else None,
        "native": row["best"]["gflops"],
    }
    name = row["problem"].replace(",dtype=", " ")
    cut = len(name) if len(name) <= LONGEST else name.rindex(",", 0, LONGEST) + 1
    first, rest = name[:cut], name[cut:]
    parts = [f'<text x="8" y="{y + 20}" {TEXT}>{escape(first)}</text>']
    if rest:
        parts.append(f'<text x="20" y="{y + 36}" {TEXT}>{escape(rest)}</text>')
    for index, (kind, speed) in enumerate(speeds.items()):
        top = y + 4 + index * (BAR + 2)
        if speed is None:
            continue
        long = WIDTH * min(1.0, speed / peak)
        parts.append(
            f'<rect x="{LEFT}" y="{top}" width="{long:.1f}" height="{BAR}" fill="{COLOURS[kind]}"/>'
            f'<text x="{LEFT + long + 6:.1f}" y="{top + 11}" {TEXT}>{speed:.0f}</text>'
        )
    return parts


if __name__ == "__main__":
    main()
