"""The table of `benchmarks.peers.main_job` as a picture.

    python -m benchmarks.peers.plot benchmarks/data/results/main_job.json docs/main_job.svg

One row per problem: OpenBLAS, the proven script, and the native kernel as shares of the
multiply-add peak that was measured in the same run.
"""

from typing import Any

from benchmarks.pictures import picture
from tilewise.plots import Plot
from tilewise.service.plots.drawing import SPEED, Row, plot

KINDS = ("OpenBLAS", "script", "native")
LONGEST = 44  # characters of a problem on a line of an axis
STEP = 14  # height of a bar


def shares_of_peak(found: dict[str, Any]) -> Plot:
    """Return the table as bars: shares of the peak of the same run."""
    rows = [bar for row in found["rows"] for bar in _bars(row)]
    return Plot(plot(
        "share of the measured multiply-add peak; at the bars: " + SPEED,
        "Bars of OpenBLAS, the proven script and the native kernel for each problem",
        height={"step": STEP},
        data={"values": rows},
        encoding={
            "y": {"field": "problem", "type": "nominal", "title": None, "sort": None,
                  "axis": {"labelLimit": 0, "labelExpr": "split(datum.label, '|')"},
                  "scale": {"paddingInner": 0.35}},
            "yOffset": {"field": "who", "sort": list(KINDS)},
            "x": {"field": "share", "type": "quantitative",
                  "title": f"{found['processor']}, one core",
                  "axis": {"format": "%"}, "scale": {"domain": [0, 1.05]}},
        },
        layer=[
            {
                "mark": "bar",
                "encoding": {
                    "color": {"field": "who", "type": "nominal", "scale": {"domain": list(KINDS)}}
                },
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 4},
                "encoding": {"text": {"field": "gflops", "type": "quantitative", "format": ".0f"}},
            },
        ],
    ))  # fmt: skip


def _bars(row: dict[str, Any]) -> list[Row]:
    peak = row["best"]["gflops"] / row["best"]["peak_fraction"]
    speeds = {
        "OpenBLAS": row["peers"].get("openblas", {}).get("gflops"),
        "script": row["proof"]["gflops"] if row["proof"] else None,
        "native": row["best"]["gflops"],
    }
    return [
        {"problem": _in_two(row["problem"]), "who": who, "gflops": speed,
         "share": round(min(1.0, speed / peak), 4)}
        for who, speed in speeds.items()
        if speed is not None
    ]  # fmt: skip


def _in_two(problem: str) -> str:
    """A long problem in two lines, which the axis divides at `|`."""
    name = problem.replace(",dtype=", " ")
    if len(name) <= LONGEST:
        return name
    cut = name.rindex(",", 0, LONGEST) + 1
    return f"{name[:cut]}|  {name[cut:]}"


if __name__ == "__main__":
    picture(__doc__, shares_of_peak)
