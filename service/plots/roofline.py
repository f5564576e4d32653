"""Plot rooflines: speed over arithmetic intensity, both logarithmic.

Williams, Waterman and Patterson, Roofline: an insightful visual performance model (CACM
52(4), 2009). Intensity counts every operand once; problems that live in a cache are read
from there, so small ones may lie above the slope of the memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import parse_target
from tilewise.service.plots.drawing import DTYPES, SPEED, Row, Spec, plot, thinned, tooltip

HEADROOM = 1.3  # of each axis beyond the last thing on it
INTENSITY = "flops per byte of operands"
OURS, TRIALS = "ours", "trials"
MOST_TRIALS = 400  # points of one problem
DASH: Spec = {"condition": {"test": "datum.roof === 'memory'", "value": [4, 3]}, "value": [1, 0]}


@dataclass(frozen=True)
class MachineLimits:
    """Peaks of a machine in GFLOP/s, and its memory bandwidth if measured.

    Peaks are by dtype; keys such as `b=i4` may follow it, after a space.
    """

    peaks: Mapping[str, float]
    bandwidth_gbs: float | None


def limits_of(result: dict[str, Any]) -> MachineLimits:
    """Return the limits of a result's machine.

    The peak is of its threads. The bandwidth is known of one thread alone, so a result of several
    threads has none.
    """
    best, machine = result["best"], result.get("machine") or {}
    peaks = {}
    if best["peak_fraction"]:
        dtype = parse_problem(result["problem"]).element.name
        peaks[dtype] = best["gflops"] / best["peak_fraction"]
    threads = parse_target(result["target"]).threads
    return MachineLimits(peaks, machine.get("bandwidth_gbs") if threads == 1 else None)


def of_report(found: dict[str, Any]) -> Spec:
    """Plot the roofline of a `tilewise bench --json` report, with the best peer of each problem."""
    machine = found["machine"]
    limits = MachineLimits(machine["peak_gflops"], machine["bandwidth_gbs"])
    rows = [row for entry in found["problems"] for row in _rows_of_entry(entry)]
    title = [f"{found['suite']}: {machine['processor']} ({machine['target']})"]
    if found["geomean_ratio"] is not None:
        title.append(f"geometric mean {found['geomean_ratio']:.2f}x the best peer")
    return roofline(title, rows, limits)


def of_problem(
    problem: str, result: dict[str, Any] | None, trials: Sequence[Row], limits: MachineLimits
) -> Spec:
    """Plot the trials, the best, peers and script of one problem under the machine's limits.

    `trials` are rows of `trial_row`.
    """
    parsed = parse_problem(problem)
    place = {"intensity": parsed.flops / parsed.bytes, "dtype": parsed.element.name}
    rows = [
        {**place, "who": TRIALS, "gflops": row["gflops"]}
        for row in thinned(trials, MOST_TRIALS)
        if row["state"] == "timed"
    ]
    place["problem"] = problem
    if result is not None:
        rows += [
            {**place, "who": name, "gflops": peer["gflops"]}
            for name, peer in sorted(result["peers"].items())
        ]
        rows.append({**place, "who": OURS, "gflops": result["best"]["gflops"]})
        if result["proof"] and result["proof"]["gflops"]:
            rows.append({**place, "who": "script", "gflops": result["proof"]["gflops"]})
    return roofline([problem], rows, limits)


def roofline(title: Sequence[str], rows: Sequence[Row], limits: MachineLimits) -> Spec:
    """Plot points under roofs. Rows have `problem`, `dtype`, `intensity`, `who` and `gflops`."""
    roofs = _roofs(rows, limits)
    dtypes = [name for name in DTYPES if any(row["dtype"] == name for row in (*rows, *roofs))]
    colour: Spec = {"field": "dtype", "type": "nominal", "scale": {"domain": dtypes}}
    whos = sorted({row["who"] for row in rows}, key=lambda name: (name != OURS, name))
    x, y = _axes([*rows, *roofs])
    tips = tooltip("problem", "who", "gflops", "intensity")
    speed = limits.bandwidth_gbs
    slope = [] if speed is None else [f"dashed: memory, {speed:.1f} GB/s; filled: ours"]
    return plot(
        [*title, *slope],
        f"Roofline of {title[0]}: {len(rows)} speeds under the machine's limits",
        encoding={"x": x, "y": y, "color": colour},
        layer=[
            {
                "data": {"values": roofs},
                "mark": {"type": "line", "strokeWidth": 1.5},
                "encoding": {"detail": {"field": "roof"}, "strokeDash": DASH,
                             "tooltip": tooltip("roof", "gflops")},
            },
            {
                "data": {"values": [row for row in rows if row["who"] != TRIALS]},
                "mark": {"type": "rule", "opacity": 0.4},
                "transform": [{"aggregate": [{"op": "min", "field": "gflops", "as": "low"},
                                             {"op": "max", "field": "gflops", "as": "high"}],
                               "groupby": ["problem", "dtype", "intensity"]}],
                "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "point", "filled": False, "strokeWidth": 1.5},
                "encoding": {
                    "shape": {"field": "who", "type": "nominal", "scale": {"domain": whos}},
                    "size": _where(TRIALS, 14, 60),
                    "opacity": _where(TRIALS, 0.4, 1),
                    "fillOpacity": _where(OURS, 1, 0),
                    "fill": colour,
                    "tooltip": tips,
                },
            },
        ],
    )  # fmt: skip


def _rows_of_entry(entry: dict[str, Any]) -> Iterable[Row]:
    problem = parse_problem(entry["problem"])
    place = {
        "problem": entry["problem"],
        "dtype": problem.element.name,
        "intensity": problem.flops / problem.bytes,
    }
    if entry["oracle"] is not None:
        yield {**place, "who": entry["oracle"]["peer"], "gflops": entry["oracle"]["gflops"]}
    if entry["ours"] is not None:
        yield {**place, "who": OURS, "gflops": entry["ours"]["gflops"]}


def _roofs(rows: Sequence[Row], limits: MachineLimits) -> list[Row]:
    """Two ends of each dtype's peak, and of the slope of the memory below the highest."""
    places = [row["intensity"] for row in rows] or [1.0]
    slope = limits.bandwidth_gbs
    if slope is not None:
        places += [peak / slope for peak in limits.peaks.values()]
    low, high = min(places) / HEADROOM, max(places) * HEADROOM
    found = []
    for dtype, peak in limits.peaks.items():
        start = low if slope is None else min(max(peak / slope, low), high)
        found += [_end(f"peak of {dtype}", dtype, at, peak) for at in (start, high)]
    if slope is not None and limits.peaks:
        dtype = max(limits.peaks, key=lambda name: limits.peaks[name])
        ends = (low, min(limits.peaks[dtype] / slope, high))
        found += [_end("memory", dtype, at, at * slope) for at in ends]
    return found


def _end(roof: str, dtype: str, intensity: float, gflops: float) -> Row:
    dtype = dtype.partition(" ")[0]
    return {"roof": roof, "dtype": dtype, "intensity": intensity, "gflops": gflops}


def _axes(rows: Sequence[Row]) -> tuple[Spec, Spec]:
    """Logarithmic axes that hold every point and every roof."""
    axes = []
    for field, title in (("intensity", INTENSITY), ("gflops", SPEED)):
        values = [row[field] for row in rows if row[field]] or [1.0]
        domain = [min(values) / HEADROOM, max(values) * HEADROOM]
        scale = {"type": "log", "domain": domain, "nice": False}
        axes.append({"field": field, "type": "quantitative", "title": title, "scale": scale,
                     "axis": {"tickCount": 6, "format": "~g"}})  # fmt: skip
    return axes[0], axes[1]


def _where(who: str, then: float, other: float) -> Spec:
    """A number for one kind of point, and another for the rest."""
    return {"condition": {"test": f"datum.who === '{who}'", "value": then}, "value": other}
