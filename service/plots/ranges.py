"""Speed over the sizes of a range, with its variants in colours."""

from collections.abc import Iterator, Sequence

from tilewise.kernels.problem import Problem, from_plain, parse_range
from tilewise.search.ranges.result import size_text
from tilewise.service.plots.drawing import SPEED, Row, Spec, plot, tooltip

FASTEST = "fastest of each"
"""The fastest schedule of all that were timed at a sample."""


def sampled(found: Row) -> list[Problem]:
    """Return the problems of the samples of a tuned range."""
    problems = parse_range(found["problem"])
    return [problems.at(from_plain(sample["size"])) for sample in found["samples"]]


def over_sizes(found: Row, results: Sequence[Row | None] = ()) -> Spec:
    """Plot the samples of a tuned range, and which variant serves which sizes.

    `found` is the object of `GET /v1/schedules`; `results` are those of its samples, whose peers
    are drawn, too.
    """
    loss, is_line = found["loss"], "," not in found["dim"]
    rows = [row for sample in found["samples"] for row in _rows(sample)]
    rows += [
        {"size": sample["size"], "series": name, "gflops": peer["gflops"], "serves": False}
        for sample, result in zip(found["samples"], results, strict=False)
        for name, peer in (result or {"peers": {}})["peers"].items()
    ]
    if not is_line:
        for row in rows:
            row["size"] = size_text(found, row["size"])
    loss_text = (
        f"variants take {loss['geometric_mean']:.1%} longer than the fastest schedule of each "
        f"sample, at most {loss['worst']:.1%}"
    )
    line: Spec = {"type": "quantitative", "scale": {"type": "log", "nice": False}}
    x: Spec = {**(line if is_line else {"type": "ordinal", "sort": None}), "title": found["dim"]}
    y: Spec = {"field": "gflops", "type": "quantitative", "title": SPEED}
    domain = sorted({row["series"] for row in rows}, key=lambda name: (name[:7] != "variant", name))
    color: Spec = {"field": "series", "type": "nominal", "scale": {"domain": domain}}
    shared: Spec = {"x": {"field": "size", **x}, "y": y, "color": color}
    points = {
        "shape": color,
        "size": {"condition": {"test": "datum.serves", "value": 110}, "value": 25},
        "tooltip": tooltip("size", "series", "gflops"),
    }
    layers: list[Spec] = [
        {"mark": {"type": "line", "opacity": 0.5}, "encoding": shared},
        {"mark": {"type": "point", "filled": True}, "encoding": {**shared, **points}},
    ]
    if is_line:
        spans = [
            {"first": first, "last": last, "series": f"variant {variant}"}
            for first, last, variant in found["spans"]
        ]
        ends = {"x": {"field": "first", **x}, "x2": {"field": "last"}, "y": {"datum": 0}}
        layers.append(
            {
                "data": {"values": spans},
                "mark": {"type": "rule", "strokeWidth": 6, "strokeCap": "square"},
                "encoding": {**ends, "color": color, "tooltip": tooltip("series", "first", "last")},
            }
        )
    says = (
        f"speed of {len(found['variants'])} variants at {len(found['samples'])} sizes: {loss_text}"
    )
    return plot([found["problem"], loss_text], says, data={"values": rows}, layer=layers)


def _rows(sample: Row) -> Iterator[Row]:
    """Yield the speed of each variant at a sample, and of the fastest schedule."""
    size, times = sample["size"], sample["times_us"]
    flops = sample["gflops"] * times[sample["variant"]]
    named = [(f"variant {at}", taken, at == sample["variant"]) for at, taken in enumerate(times)]
    for series, taken, serves in [*named, (FASTEST, sample["best_us"], False)]:
        if taken is not None:
            gflops = float(f"{flops / taken:.5g}")
            yield {"size": size, "series": series, "gflops": gflops, "serves": serves}
