"""Compare speeds in plots: of a suite's problems, of toolchains, of two schedules."""

from collections.abc import Sequence

from tilewise.service.plots.drawing import SPEED, Row, Spec, plot, tooltip

NAMED = 28  # height of a speed with its name


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
    """Plot values over time, a line for each series, and where a toolchain had its first one.

    Rows are in the order of `when`, and have `value`, `series` and `toolchain`. Those with
    `is_kept` false are points off the line. `low` and `high` are the ends of an interval.
    """
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(row["toolchain"], {"when": row["when"], "toolchain": row["toolchain"]})
    changes = list(first.values())[1:]
    y: Spec = {"type": "quantitative", "title": None, "scale": {"zero": False}}
    legend = {"labelLimit": 400}
    colour = {"field": "series", "type": "nominal", "legend": legend}
    layers: list[Spec] = [
        {
            "data": {"values": changes},
            "mark": "rule",
            "encoding": {
                "strokeDash": {"datum": "new toolchain", "scale": {"range": [[4, 3]]}},
                "tooltip": tooltip("toolchain", "when"),
            },
        },
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "opacity": 0.6},
            "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": colour},
        },
        {
            "transform": [{"filter": "datum.is_kept !== false"}],
            "mark": "line",
            "encoding": {"y": {**y, "field": "value"}, "color": colour},
        },
        {
            "mark": {"type": "point", "filled": True},
            "encoding": {
                "y": {**y, "field": "value"},
                "color": colour,
                "opacity": {
                    "condition": {"test": "datum.is_kept === false", "value": 0.4},
                    "value": 1,
                },
                "tooltip": tooltip("series", "value", "low", "high", "when", "toolchain"),
            },
        },
    ]
    return plot(
        title,
        f"{title}: {len(rows)} values over time, of {len(first)} toolchains",
        data={"values": list(rows)},
        encoding={
            "x": {
                "field": "when",
                "type": "temporal",
                "title": None,
                # Of reports minutes apart the axis would name thousandths of seconds.
                "axis": {"format": "%b %d, %H:%M", "tickCount": 5, "labelOverlap": True},
            }
        },
        layer=layers if changes else layers[1:],
    )


def _speed(field: str) -> Spec:
    return {"field": field, "type": "quantitative", "title": SPEED, "scale": {"zero": False}}
