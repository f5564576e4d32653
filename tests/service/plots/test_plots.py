import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import vl_convert

from benchmarks.peers.plot import shares_of_peak
from tilewise.kernels.errors import KernelsError
from tilewise.service.plots import convergence, drawing, nest, parameters, roofline, speeds
from tilewise.service.plots.drawing import improvements, thinned, trial_row

PROBLEM = "matmul:m=100,n=70,k=33,dtype=f32"
RESULTS = Path(__file__).parents[3] / "benchmarks" / "data" / "results" / "znver5"
STEPS = [
    {"step": "tile", "dim": "n", "size": 32},
    {"step": "pack", "operand": "B"},
    {"step": "register", "rows": 6, "cols": 16, "outer": "rows"},
]


def trial(number: int, gflops: float | None, state: str = "timed", **more: Any) -> dict[str, Any]:
    interval = None if gflops is None else [gflops * 0.9, gflops * 1.1]
    return {
        "number": number, "state": state, "origin": "prior" if number < 3 else "surrogate",
        "failure": "crash" if state == "failed" else None, "message": "", "hash": f"{number:016x}",
        "gflops": gflops, "interval": interval, "time_us": None if gflops is None else 1e3 / gflops,
        "pace": 1.0 + number / 100, "params": {"rows": number % 5, "pack": number % 2 == 0},
    } | more  # fmt: skip


TRIALS = [trial(0, 20.0), trial(1, None, "failed"), trial(2, 35.0), trial(3, 30.0, "pruned"),
          *(trial(n, 20.0 + n % 5 * 10) for n in range(4, 24))]  # fmt: skip
ROWS = [trial_row(one) for one in TRIALS]
LIMITS = roofline.MachineLimits({"f32": 100.0}, 10.0)
RESULT = {
    "problem": PROBLEM,
    "best": {"gflops": 60.0, "peak_fraction": 0.6},
    "peers": {"openblas": {"gflops": 50.0}},
    "proof": {"gflops": 55.0},
}
SPECS = {
    "search": convergence.search(PROBLEM, ROWS),
    "search of nothing": convergence.search(PROBLEM, []),
    "convergence": convergence.convergence(PROBLEM, ROWS),
    "convergence under a peak": convergence.convergence(PROBLEM, ROWS, 100.0),
    "pace": convergence.pace(ROWS),
    "origins": convergence.origins(ROWS),
    "importance": parameters.importance({"rows": 0.75, "pack": 0.25}, 20),
    "parallel": parameters.parallel(TRIALS, ["rows"]),
    "roofline": roofline.of_problem(PROBLEM, RESULT, ROWS, LIMITS),
    "roofline without bandwidth": roofline.of_problem(
        PROBLEM, None, ROWS, roofline.MachineLimits({"f32": 100.0}, None)
    ),
    "roofline of nothing": roofline.roofline([PROBLEM], [], roofline.MachineLimits({}, None)),
    "suite": roofline.of_report(json.loads((RESULTS / "square.json").read_text())),
    "bars": shares_of_peak(json.loads((RESULTS / "main_job.json").read_text())).spec,
    "intervals": speeds.intervals("two", [{"name": "a", "gflops": 1.0, "low": None, "high": None}]),
    "history": speeds.history("h", [
        {"when": f"2026-01-0{day}T00:00:00Z", "value": day, "series": "s", "low": day - 0.5,
         "high": day + 0.5, "is_kept": day != 3, "toolchain": "old" if day < 3 else "new"}
        for day in range(1, 6)
    ]),
    "history of one": speeds.history("h", [{"when": "2026-01-01T00:00:00Z", "value": 1.0,
                                            "series": "s", "toolchain": "t"}]),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", SPECS)
def test_the_renderer_draws_every_plot_in_both_themes(name: str, theme: drawing.Theme) -> None:
    svg = drawing.draw(SPECS[name], "svg", theme).decode()
    ElementTree.fromstring(svg)
    assert drawing.COLOURS[theme]["page"] in svg
    assert SPECS[name]["description"]


def test_files_of_each_kind_are_what_their_names_say() -> None:
    assert drawing.draw(SPECS["pace"], "png").startswith(b"\x89PNG")
    page = drawing.draw(SPECS["pace"], "html").decode()
    assert "<html" in page and 'src="http' not in page
    assert drawing.draw_svg(nest.draw(PROBLEM, STEPS), "png").startswith(b"\x89PNG")


def drawn(spec: drawing.Spec, kind: str) -> list[dict[str, Any]]:
    """Items of the marks of a kind, as the renderer has placed them."""
    graph = vl_convert.vegalite_to_scenegraph(drawing.sized(spec), vl_version=drawing.VEGA_LITE)
    found: list[dict[str, Any]] = []

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("marktype") == kind:
                found.extend(node.get("items", []))
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(graph)
    return found


def test_every_trial_is_a_point_and_failures_lie_at_the_lower_edge() -> None:
    points = [one for one in drawn(SPECS["convergence"], "symbol") if "state" in str(one)]
    assert len(points) == len(TRIALS)
    lowest = max(points, key=lambda one: one.get("y", 0.0))
    assert "failed" in str(lowest)


def test_a_history_has_intervals_new_toolchains_and_a_line_through_what_was_kept() -> None:
    rules = [one.get("description", "") for one in drawn(SPECS["history"], "rule")]
    assert sum("low: " in rule for rule in rules) == 5 and len(drawn(SPECS["history"], "line")) == 4
    assert [rule for rule in rules if "low" not in rule and rule] == [
        "when: Jan 03, 00:00; toolchain: new"
    ]


def test_a_thinned_search_keeps_every_improvement_and_its_order() -> None:
    many = [trial_row(trial(n, 10.0 + (n * 7919 % 1000) / 10)) for n in range(10_000)]
    kept = thinned(many, most=500)
    assert improvements(many) <= {row["number"] for row in kept}
    assert len(kept) <= 500 + len(improvements(many))
    assert [row["number"] for row in kept] == sorted(row["number"] for row in kept)
    spec = convergence.convergence(PROBLEM, many)
    assert "of 10000 trials" in spec["title"]["subtitle"][0]
    assert len(json.dumps(spec)) < 300_000


def test_a_parameter_that_decides_is_the_most_important() -> None:
    trials = [
        trial(n, 10.0 * (n % 4 + 1), params={"decides": n % 4, "idle": n // 4 % 3})
        for n in range(36)
    ]
    found = parameters.importances(trials)
    assert list(found) == ["decides", "idle"] and found["decides"] > 0.9
    assert sum(found.values()) == pytest.approx(1.0)
    assert parameters.importances(trials[:7]) == {}


def test_parallel_axes_are_in_the_order_given_and_values_in_theirs() -> None:
    sizes = ["4x2", "12x1", "6x4"]
    trials = [trial(n, 1.0 + n, params={"tile": sizes[n % 3], "b": n % 2 == 0}) for n in range(9)]
    spec = parameters.parallel(trials, ["tile.vectors", "tile.rows"])
    ticks = spec["layer"][1]["data"]["values"]
    assert [(tick["axis"], tick["value"]) for tick in ticks] == [
        *(("tile.vectors", value) for value in "124"),
        *(("tile.rows", value) for value in ("4", "6", "12")),
        ("b", "no"), ("b", "yes"),
    ]  # fmt: skip
    assert [tick["at"] for tick in ticks] == [0.0, 0.5, 1.0, 0.0, 0.5, 1.0, 0.0, 1.0]


def test_the_slope_meets_the_peak_where_bandwidth_and_peak_do() -> None:
    spec = roofline.of_problem(PROBLEM, RESULT, ROWS, LIMITS)
    roofs = spec["layer"][0]["data"]["values"]
    corner = {(row["roof"], row["intensity"]): row["gflops"] for row in roofs}
    assert corner["memory", 10.0] == corner["peak of f32", 10.0] == 100.0
    points = spec["layer"][2]["data"]["values"]
    flops, moved = 2 * 100 * 70 * 33, 4 * (100 * 33 + 33 * 70 + 100 * 70)
    assert {row["intensity"] for row in points} == {flops / moved}
    speeds_of = {row["who"]: row["gflops"] for row in points if row["who"] != "trials"}
    assert speeds_of == {"ours": 60.0, "openblas": 50.0, "script": 55.0}


def test_a_nest_is_drawn_with_its_loops_packs_and_bytes() -> None:
    svg = nest.draw(PROBLEM, STEPS, {"l1": 1024, "l2": 16 * 1024})
    texts = [one.text or "" for one in ElementTree.fromstring(svg).iter()
             if one.tag.endswith("text")]  # fmt: skip
    said = " | ".join(texts)
    assert texts[0] == "for n in steps of 32"
    assert "tile, 3 trips" in said
    # 33 deep, two panels of 16 columns, 4 bytes each
    assert "pack B to 2x1x33x16: 4.1 KiB, fits L2" in said
    assert "micro-kernel: 6 x 16 of C in registers" in said
    # 100 rows are 17 tiles of six; 70 columns are blocks of 32, 32 and 6: 2 + 2 + 1 panels
    assert "85 calls" in said


def test_a_nest_shows_what_is_jammed_and_who_walks() -> None:
    problem = "conv2d:n=1,h=14,w=14,ci=32,co=32,kh=3,kw=3,pad=1,groups=32,dtype=f32"
    steps = [{"step": "register", "rows": 7, "cols": 16, "outer": "rows"},
             {"step": "jam", "dim": "oh", "factor": 2}]  # fmt: skip
    svg = nest.draw(problem, steps, {})
    assert "micro-kernel: 2 x 7 x 16 of C in registers" in svg
    assert "28 tiles" in svg and " calls" not in svg  # 7 pairs of lines, 2 of pixels, 2 vectors


def test_parameters_with_one_value_are_not_drawn() -> None:
    trials = [
        trial(n, 1.0 + n % 3, params={"tile": f"{n % 3 + 1}x1", "same": 1}) for n in range(12)
    ]
    ticks = parameters.parallel(trials)["layer"][1]["data"]["values"]
    assert {tick["axis"] for tick in ticks} == {"tile.rows"}
    assert set(parameters.importances(trials)) == {"tile.rows"}


def test_what_cannot_be_a_nest_is_refused() -> None:
    with pytest.raises(KernelsError):
        nest.draw(PROBLEM, [{"step": "tile", "dim": "q", "size": 3}, *STEPS[2:]])


def test_names_in_a_drawing_are_text() -> None:
    spec = convergence.convergence('<script>alert("x")</script>', ROWS)
    svg = drawing.draw(spec, "svg").decode()
    assert "<script" not in svg and "&lt;script&gt;" in svg


def test_the_peak_is_a_line_with_a_name_in_the_legend():
    spec = convergence.convergence(PROBLEM, ROWS, 123.0)
    assert "peak of 123.0 GFLOP/s" in spec["description"]
    svg = drawing.draw(spec, "svg").decode()
    assert "best so far" in svg and ">peak<" in svg
    assert "peak of" not in convergence.convergence(PROBLEM, ROWS)["description"]
