"""Speeds beside each other: of a suite's problems, of toolchains, of two schedules."""

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


def _speed(field: str) -> Spec:
    return {"field": field, "type": "quantitative", "title": SPEED, "scale": {"zero": False}}
