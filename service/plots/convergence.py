"""Plot a search: trials, the best so far, the machine speed factor, and origins."""

from collections.abc import Sequence

from tilewise.service.plots.drawing import (
    SPEED,
    TRIALS,
    Row,
    Spec,
    plot,
    shown_of,
    state_scale,
    thinned,
    tooltip,
)

BEST, PEAK = "best so far", "peak"
PACE_HEIGHT = 60
ORIGIN_HEIGHT = 26  # for each origin

_NUMBER = {"field": "number", "type": "quantitative", "title": "trial", "axis": {"tickMinStep": 1}}
_SPEED = {"field": "gflops", "type": "quantitative", "title": SPEED, "scale": {"zero": False}}
_FIELDS = ("number", "state", "gflops", "low", "high", "origin", "failure", "pace", "hash")


def convergence(problem: str, trials: Sequence[Row], peak: float | None = None) -> Spec:
    """Plot the speed of each trial with its interval, failures, and the best so far.

    `trials` are rows of `trial_row`; `peak` is in GFLOP/s.
    """
    shown = thinned(trials)
    says = f"Speed of {len(trials)} trials of {problem} by their number, and the best so far"
    if peak is not None:
        says += f", below the peak of {peak:.1f} GFLOP/s"
    return plot(
        [problem, *shown_of(len(shown), len(trials))],
        says,
        data={"name": TRIALS, "values": shown},
        encoding={"x": _NUMBER},
        layer=[
            _intervals(),
            _points(),
            _failures(),
            _best_so_far(),
            *([] if peak is None else [_peak(peak)]),
        ],
    )


def pace(trials: Sequence[Row]) -> Spec:
    """Return the machine speed factor relative to the first trial."""
    return plot(
        "machine speed factor; above 1 it was slower than undisturbed",
        "The machine's speed factor by trial",
        height=PACE_HEIGHT,
        data={"name": TRIALS, "values": thinned(trials)},
        transform=[{"filter": "isValid(datum.pace)"}],
        mark={"type": "line", "interpolate": "step-after", "strokeWidth": 1.2},
        encoding={
            "x": _NUMBER,
            "y": {
                "field": "pace", "type": "quantitative", "title": "pace",
                "scale": {"zero": False}, "axis": {"tickCount": 3},
            },
        },
    )  # fmt: skip


def origins(trials: Sequence[Row]) -> Spec:
    """Plot the speeds by origin: the model, near problems, or the sampler."""
    names = sorted({row["origin"] for row in trials})
    return plot(
        "where trials came from",
        f"Speeds of trials by origin: {', '.join(names)}",
        height=ORIGIN_HEIGHT * max(1, len(names)),
        data={"name": TRIALS, "values": thinned(trials)},
        transform=[{"filter": "isValid(datum.gflops)"}],
        mark={"type": "tick", "thickness": 1.5},
        encoding={
            "x": _SPEED,
            "y": {"field": "origin", "type": "nominal", "title": None},
            "color": state_scale()["color"],
            "tooltip": tooltip("number", "origin", "state", "gflops", "hash"),
        },
    )


def search(problem: str, trials: Sequence[Row], peak: float | None = None) -> Spec:
    """Return all three plots below each other, for a file."""
    parts = [convergence(problem, trials, peak), pace(trials), origins(trials)]
    title = parts[0].pop("title")
    for part in parts:
        part.pop("$schema")
    return {**plot(problem, parts[0]["description"]), "title": title, "vconcat": parts}


def _intervals() -> Spec:
    return {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "opacity": 0.45},
        "encoding": {"y": {**_SPEED, "field": "low"}, "y2": {"field": "high"}},
    }


def _points() -> Spec:
    return {
        "transform": [{"filter": "isValid(datum.gflops)"}],
        "mark": {"type": "point", "filled": True},
        "encoding": {"y": _SPEED, **state_scale(), "tooltip": tooltip(*_FIELDS)},
    }


def _failures() -> Spec:
    """A trial without a speed is marked at the lower edge."""
    return {
        "transform": [{"filter": "!isValid(datum.gflops)"}],
        "mark": {"type": "point", "filled": True, "size": 50, "yOffset": -5},
        "encoding": {
            "y": {"value": "height"},
            **state_scale(),
            "tooltip": tooltip("number", "state", "failure", "origin", "hash"),
        },
    }


def _best_so_far() -> Spec:
    return {
        "transform": [
            {"filter": "datum.state === 'timed'"},
            {
                "window": [{"op": "max", "field": "gflops", "as": "best"}],
                "sort": [{"field": "number"}],
            },
        ],
        "mark": {"type": "line", "interpolate": "step-after"},
        "encoding": {"y": {**_SPEED, "field": "best"}, "strokeDash": _line(BEST)},
    }


def _peak(gflops: float) -> Spec:
    return {
        "data": {"values": [{"peak": gflops}]},
        "mark": {"type": "rule", "strokeWidth": 1.5},
        "encoding": {
            "x": {"value": 0},
            "x2": {"value": "width"},
            "y": {**_SPEED, "field": "peak"},
            "strokeDash": _line(PEAK),
            "tooltip": tooltip("peak"),
        },
    }


def _line(name: str) -> Spec:
    """Name a line in the legend, by its dashes."""
    return {
        "datum": name,
        "type": "nominal",
        "scale": {"domain": [BEST, PEAK], "range": [[1, 0], [6, 4]]},
    }
