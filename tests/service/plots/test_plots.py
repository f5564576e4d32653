import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.peers.plot import shares_of_peak
from tests.tilewise.test_results import found
from tilewise.kernels.errors import KernelsError, ScheduleError
from tilewise.kernels.schedule import KStreams, Pack, Register, Schedule, Skinny, Stream, Tile
from tilewise.service.plots import convergence, drawing, nest, roofline, speeds
from tilewise.service.plots.drawing import improvements, thinned, trial_row

PROBLEM = "matmul:m=100,n=70,k=33,dtype=f32"
RESULTS = Path(__file__).parents[3] / "benchmarks" / "data" / "results" / "znver5"
STEPS = [{"step": "tile", "dim": "n", "size": 32}, {"step": "pack", "operand": "B"},
         {"step": "register", "rows": 6, "cols": 16, "outer": "rows"}]  # fmt: skip


def trial(number, gflops, state="timed", **more):
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
LIMITS, NO_BANDWIDTH = (roofline.MachineLimits({"f32": 100.0}, it) for it in (10.0, None))
RESULT = {"problem": PROBLEM, "best": {"gflops": 60.0, "peak_fraction": 0.6},
          "peers": {"openblas": {"gflops": 50.0}}, "proof": {"gflops": 55.0}}  # fmt: skip
SPECS = {
    "search": convergence.search(PROBLEM, ROWS),
    "search of nothing": convergence.search(PROBLEM, []),
    "convergence": convergence.convergence(PROBLEM, ROWS),
    "convergence under a peak": convergence.convergence(PROBLEM, ROWS, 100.0),
    "pace": convergence.pace(ROWS),
    "origins": convergence.origins(ROWS),
    "roofline": roofline.of_problem(PROBLEM, RESULT, ROWS, LIMITS),
    "roofline without bandwidth": roofline.of_problem(PROBLEM, None, ROWS, NO_BANDWIDTH),
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
def test_the_renderer_draws_every_plot_in_both_themes(name, theme):
    svg = drawing.draw(SPECS[name], "svg", theme).decode()
    ElementTree.fromstring(svg)
    assert drawing.COLOURS[theme]["page"] in svg
    assert SPECS[name]["description"]


@pytest.mark.full
def test_files_of_each_kind_are_what_their_names_say():
    assert drawing.draw(SPECS["pace"], "png").startswith(b"\x89PNG")
    page = drawing.draw(SPECS["pace"], "html").decode()
    assert "<html" in page and 'src="http' not in page
    assert drawing.draw_svg(nest.draw(PROBLEM, STEPS), "png").startswith(b"\x89PNG")


def test_a_thinned_search_keeps_every_improvement_and_its_order():
    many = [trial_row(trial(n, 10.0 + (n * 7919 % 1000) / 10)) for n in range(10_000)]
    kept = thinned(many, most=500)
    assert improvements(many) <= {row["number"] for row in kept}
    assert len(kept) <= 500 + len(improvements(many))
    assert [row["number"] for row in kept] == sorted(row["number"] for row in kept)
    spec = convergence.convergence(PROBLEM, many)
    assert "of 10000 trials" in spec["title"]["subtitle"][0]
    assert len(json.dumps(spec)) < 300_000


def test_a_nest_is_drawn_with_its_loops_packs_and_bytes():
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


def test_transforms_are_not_called_packs():
    problem = "conv2d:n=1,h=9,w=9,ci=8,co=32,kh=3,kw=3,dtype=f32"
    steps = Schedule((Pack("B"), Tile("t", 2), Pack("A"), Register(2, 32))).to_json()
    drawn = nest.draw(problem, [{"step": "winograd", "output": 4}, *steps])
    for said in ("transform B to 1x36x8x32:", "transform A to 36x2x8:", "to C, of 2x32 at all"):
        assert said in drawn
    assert "pack " not in drawn.partition("<title>")[2].partition("</title>")[2]
    direct = nest.draw(problem, Schedule((Pack("B"), Tile("n", 1), Register(2, 32))).to_json())
    assert "pack B to 1x9x8x32:" in direct and "transform" not in direct


def test_streams_are_named():
    steps = (Tile("n", 64), Stream("k", 8), Register(1, 32), Skinny("n"), KStreams("k", 4))
    drawn = nest.draw("matmul:m=1,n=200,k=40,dtype=f32", Schedule(steps).to_json())
    assert "tile, 4 trips" in drawn and "over 8 of k in 4 streams" in drawn
    plain = nest.draw("matmul:m=1,n=200,k=40,dtype=f32", Schedule(steps[:-1]).to_json())
    assert "streams" not in plain


def test_what_cannot_be_a_nest_is_refused():
    with pytest.raises(KernelsError):
        nest.draw(PROBLEM, [{"step": "tile", "dim": "q", "size": 3}, *STEPS[2:]])
    of_iree = [{"step": "pipeline", "passes": "DoubleTilingExpert", "remainders": "masked"}]
    assert nest.drawn(PROBLEM, of_iree) == ""
    with pytest.raises(ScheduleError, match=r"'pipeline', .* no step of a schedule for a target"):
        nest.draw(PROBLEM, of_iree)


def test_names_in_a_drawing_are_text():
    spec = convergence.convergence('<script>alert("x")</script>', ROWS)
    svg = drawing.draw(spec, "svg").decode()
    assert "<script" not in svg and "&lt;script&gt;" in svg


def test_a_noisy_result_and_a_fast_algorithm_are_named():
    plain = nest.result_card(found(proof={"sha256": "0"}))
    assert "noisy" not in plain and "fewer" not in plain
    steps = [{"step": "strassen", "levels": 1}]
    card = nest.result_card(found(best={"quality": "noisy", "steps": steps}, proof={"sha256": "0"}))
    assert "noisy machine: measure again" in card
    assert "strassen does fewer multiplications than GFLOP/s counts" in card
