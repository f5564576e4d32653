"""Plot the importance of parameters, and parallel coordinates of the trials."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tilewise.search.space.points import TilePoint, point_from_json
from tilewise.service.plots.drawing import SPEED, Row, Spec, plot, shown_of, thinned, tooltip

FEWEST = 8  # trials that an importance is read from
MOST_READ = 1000  # more of them take seconds and show the same
BAR = 22  # height of one
MOST_LINES = 150


def importances(trials: Sequence[Row]) -> dict[str, float]:
    """Return the share of each parameter in the time, largest first; empty for few trials.

    PED-ANOVA (Watanabe, Bansal and Hutter, IJCAI 2023) by Optuna; very many trials are sampled
    evenly.
    """
    timed = _timed(trials)
    if len(timed) < FEWEST:
        return {}
    timed = timed[:: -(-len(timed) // MOST_READ)]
    with warnings.catch_warnings():
        # The evaluator is called experimental, and in a notebook Optuna's progress bar says what
        # it would look like with more packages.
        warnings.simplefilter("ignore")
        found = _evaluated(timed)
    tried = {name: {trial["params"].get(name) for trial in timed} for name in found}
    found = {name: share for name, share in found.items() if len(tried[name]) > 1}
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _timed(trials: Sequence[Row]) -> list[Row]:
    """Return the trials that were timed, with a parameter for each field of their tile."""
    timed = [trial for trial in trials if trial["state"] == "timed" and trial["params"]]
    return [{**trial, "params": dict(_fields(trial["params"]))} for trial in timed]


def _fields(params: Row) -> Iterator[tuple[str, Any]]:
    for name, value in point_from_json(params).items():
        if isinstance(value, TilePoint):
            yield from ((f"{name}.{field}", part) for field, part in asdict(value).items())
        else:
            yield name, value


def _evaluated(timed: Sequence[Row]) -> dict[str, float]:
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import create_trial

    from tilewise.search.engine.study import in_memory

    choices = _choices(timed)
    study = in_memory()
    study.add_trials(
        create_trial(params=trial["params"], value=trial["time_us"],
                     distributions={name: choices[name] for name in trial["params"]})
        for trial in timed
    )  # fmt: skip
    return get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())


def importance(found: dict[str, float], count: int) -> Spec:
    """Plot importances as bars; `count` is the number of trials they were read from."""
    rows = [{"parameter": name, "importance": round(share, 4)} for name, share in found.items()]
    return plot(
        f"importance of the parameters, of {count} trials",
        "Importance of each parameter of the search: "
        + ", ".join(f"{name} {share:.2f}" for name, share in found.items()),
        height=BAR * max(1, len(rows)),
        data={"values": rows},
        mark="bar",
        encoding={
            "x": {"field": "importance", "type": "quantitative", "axis": {"format": "%"}},
            "y": {"field": "parameter", "type": "nominal", "title": None, "sort": None},
            "tooltip": tooltip("parameter", "importance"),
        },
    )


def parallel(trials: Sequence[Row], order: Sequence[str] = ()) -> Spec:
    """Plot a line through the values of each timed trial; fast ones are strong.

    Parameters with a single value are left out; those not in `order` follow by name.
    """
    timed = _timed(trials)
    shown = thinned(timed, MOST_LINES)
    names = [*order, *sorted({name for trial in shown for name in trial["params"]} - set(order))]
    values = {name: _sorted({trial["params"].get(name) for trial in shown}) for name in names}
    names = [name for name in names if len(values[name]) > 1] or names
    lines = [row for trial in shown for row in _line(trial, names, values)]
    ticks = [
        {"axis": name, "at": _place(values[name], value), "value": _text(value)}
        for name in names
        for value in values[name]
    ]
    x = {"field": "axis", "type": "nominal", "sort": names, "title": None,
         "axis": {"labelAngle": 0, "grid": True, "domain": False, "ticks": False}}  # fmt: skip
    y: Spec = {"field": "at", "type": "quantitative", "axis": None}
    return plot(
        ["parameters of the timed trials", *shown_of(len(shown), len(timed))],
        f"Parallel coordinates of {len(shown)} timed trials over {', '.join(names)}",
        layer=[
            {
                "data": {"values": lines},
                "mark": {"type": "line", "opacity": 0.6, "strokeWidth": 1.2},
                "encoding": {
                    "x": x, "y": y, "detail": {"field": "number"},
                    "color": {"field": "gflops", "type": "quantitative", "title": SPEED},
                },
            },
            {
                "data": {"values": ticks},
                "mark": {"type": "text", "align": "left", "dx": 4},
                "encoding": {"x": x, "y": y, "text": {"field": "value"}},
            },
        ],
    )  # fmt: skip


def _line(trial: Row, names: Sequence[str], values: dict[str, list[Any]]) -> list[Row]:
    speed, number = trial["gflops"], trial["number"]
    return [
        {
            "number": number,
            "gflops": float(f"{speed:.4g}"),
            "axis": name,
            "at": _place(values[name], trial["params"].get(name)),
        }
        for name in names
    ]


def _place(values: Sequence[Any], value: Any) -> float:
    """The position of a value on its axis, from 0 to 1."""
    return round(values.index(value) / max(1, len(values) - 1), 4)


def _choices(trials: Sequence[Row]) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution

    names = {name for trial in trials for name in trial["params"]}
    return {
        name: CategoricalDistribution(
            _sorted({trial["params"][name] for trial in trials if name in trial["params"]})
        )
        for name in names
    }


def _sorted(values: set[Any]) -> list[Any]:
    """Values in their natural order: the absent first, texts, and numbers by size."""
    return sorted(values, key=_natural)


def _natural(value: Any) -> tuple[bool, bool, int, str]:
    is_size = isinstance(value, int) and not isinstance(value, bool)
    return value is not None, is_size, value if is_size else 0, str(value)


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
