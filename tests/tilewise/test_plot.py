import json
from pathlib import Path

import pytest

from tests.service.archive.stores import RANGE
from tests.tilewise.conftest import PROBLEM, Cli
from tilewise import plots
from tilewise.client import Client, Result
from tilewise.errors import BadInputError, MissingError
from tilewise.schema.base import read

SIGNS = {"svg": b"<svg", "png": b"\x89PNG", "html": b"<!doctype html"}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["convergence", "nest"])
@pytest.mark.parametrize("ending", SIGNS)
def test_the_name_of_a_file_says_its_kind(
    cli: Cli, tuned: str, tmp_path: Path, kind: str, ending: str
) -> None:
    file = tmp_path / f"plot.{ending.upper()}"
    ran = cli("plot", PROBLEM, "--kind", kind, "-o", str(file), "--theme", "dark")
    assert (ran.code, ran.err) == (0, "")
    assert file.read_bytes().lower().startswith(SIGNS[ending].lower())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((PROBLEM, "-o", "plot.pdf"), 2, "ends in none of .svg, .png, .html"),
        ((PROBLEM, "-o", "absent/plot.svg"), 2, "there is no folder"),
        (("matmul:m=8,n=8,k=8,dtype=f32", "-o", "plot.svg"), 3, "no trials"),
        (("matmul:m=0,n=8,k=8,dtype=f32", "-o", "plot.svg"), 2, "m=0"),
        (("99", "-o", "plot.svg"), 3, "there is no job 99"),
        (("0", "-o", "plot.svg"), 2, "job 0 is not from 1 to"),
        (("9" * 40, "-o", "plot.svg"), 2, "is not from 1 to"),
        ((PROBLEM, "--cache", "cold", "-o", "plot.svg"), 3, "no cold trials"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    cli: Cli,
    tuned: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = cli("plot", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert said in ran.err and ran.err.count("\n") == 1
    assert not list(tmp_path.glob("plot.*"))


def test_a_machine_is_told_what_was_written(cli: Cli, tuned: str, tmp_path: Path) -> None:
    file = tmp_path / "plot.svg"
    assert json.loads(cli("plot", PROBLEM, "-o", str(file), "--json").out) == {
        "file": str(file), "kind": "convergence",
    }  # fmt: skip


def test_a_range_is_drawn_over_its_sizes(cli: Cli, ranged: str, tmp_path: Path) -> None:
    file = tmp_path / "plot.svg"
    told = json.loads(cli("plot", RANGE, "-o", str(file), "--json").out)
    assert told["kind"] == "sizes"
    for text in (RANGE, "variant 0", "variant 1", "fastest of each"):
        assert text in file.read_text()
    for problem, kind in ((RANGE, "nest"), (PROBLEM, "sizes")):
        ran = cli("plot", problem, "--kind", kind, "-o", str(file))
        assert (ran.code, ran.err) == (
            2, f"tilewise: --kind {kind} does not draw {problem}; --kind sizes draws ranges\n"
        )  # fmt: skip


def test_a_notebook_gets_the_specification_and_a_picture(cli: Cli, tuned: str) -> None:
    trials = json.loads(cli("trials", PROBLEM, "--format", "json").out)
    shown = plots.convergence(trials)._repr_mimebundle_()
    assert shown[plots.VEGA_LITE_MIME]["title"]["text"] == PROBLEM
    assert shown["image/svg+xml"].startswith("<svg")


def test_a_result_shows_itself_in_a_notebook(served: str, tuned: str) -> None:
    with Client(served) as client:
        result = client.schedule(PROBLEM)
    card = result._repr_html_()
    for part in (PROBLEM, f"{result.best.gflops:.1f} GFLOP/s", "script", "<svg", "micro-kernel"):
        assert part in card
    hostile = read(Result, {**result.document, "target": "<script>alert(1)</script>"})
    assert "<script" not in hostile._repr_html_()
    newer = {**result.document["best"], "steps": [{"step": "of a newer version"}]}
    assert "<svg" not in read(Result, {**result.document, "best": newer})._repr_html_()


def test_plots_of_nothing_say_so(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        plots.convergence([])
    with pytest.raises(BadInputError, match="ends in none of"):
        plots.format_of(tmp_path / "plot")
