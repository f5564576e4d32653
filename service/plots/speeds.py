"""Speeds beside each other: of a suite's problems, of toolchains, of two schedules."""

from collections.abc import Sequence
from typing import Any

from tilewise.service.plots.drawing import SPEED, Row, Spec, plot, tooltip

KINDS = ("OpenBLAS", "script", "native")
LONGEST = 44  # characters of a problem on a line of an axis
STEP = 14  # height of a bar
NAMED = 28  # height of a speed with its name


def shares_of_peak(found: dict[str, Any]) -> Spec:
    """The table of `benchmarks.peers.main_job` as bars: shares of the peak of the same run."""
    rows = [bar for row in found["rows"] for bar in _bars(row)]
    return plot(
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
    )  # fmt: skip


def intervals(title: str, rows: Sequence[Row]) -> Spec:
    """Plot speeds with their 95% intervals; rows have `name`, `gflops`, `low` and `high`."""
    return plot(
        title,
        title + ": " + ", ".join(f"{row['name']} {row['gflops']:.1f}" for row in rows),
        height=NAMED * max(1, len(rows)),
        data={"values": list(rows)},
        encoding={"y": {"field": "name", "type": "nominal", "title": None, "sort": None,
                        "axis": {"labelLimit": 220}}},
        layer=[
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "transform": [{"filter": "isValid(datum.low)"}],
                "encoding": {"x": _speed("low"), "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60},
                "encoding": {
                    "x": _speed("gflops"), "tooltip": tooltip("name", "gflops", "low", "high"),
                },
            },
        ],
    )  # fmt: skip


def history(title: str, rows: Sequence[Row]) -> Spec:
    """Plot values over time, a line for each series.

    Rows have `when`, `value`, `series` and `toolchain`.
    """
    return plot(
        title,
        f"{title}: {len(rows)} values over time",
        data={"values": list(rows)},
        mark={"type": "line", "point": True},
        encoding={
            "x": {
                "field": "when",
                "type": "temporal",
                "title": None,
                # Of reports minutes apart the axis would name thousandths of seconds.
                "axis": {"format": "%b %d, %H:%M", "tickCount": 5, "labelOverlap": True},
            },
            "y": {
                "field": "value",
                "type": "quantitative",
                "title": None,
                "scale": {"zero": False},
            },
            "color": {"field": "series", "type": "nominal"},
            "tooltip": tooltip("series", "value", "when", "toolchain"),
        },
    )


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


def _speed(field: str) -> Spec:
    return {"field": field, "type": "quantitative", "title": SPEED, "scale": {"zero": False}}
