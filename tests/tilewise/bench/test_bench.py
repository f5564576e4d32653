import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from sqlalchemy.orm import undefer

from tests.tilewise.conftest import Cli
from tilewise.backends import local, local_search
from tilewise.bench import table
from tilewise.bench.report import Compared, PeerSpeed
from tilewise.bench.suite import SuiteEntry
from tilewise.errors import TilewiseError
from tilewise.kernels.problem import parse_problem
from tilewise.plots import Plot, roofline_of_report
from tilewise.search.records import Measurement
from tilewise.service.db import make_engine, models, reading
from tilewise.service.db.session import make_sessions

SMALL = "matmul:m=24,n=40,k=16,dtype=f32"
INTEGERS = "matmul:m=24,n=40,k=16,dtype=i32"
TOO_LARGE = "matmul:m=2000000,n=2000000,k=3,dtype=f32"
QUICK = ("--trials", "2", "--peers", "openblas")


@pytest.fixture
def suite(tmp_path: Path) -> str:
    problems = [SMALL, {"op": "matmul", "m": 24, "n": 40, "k": 16, "dtype": "i32", "count": 2},
                TOO_LARGE]  # fmt: skip
    return written(tmp_path, {"name": "tiny", "problems": problems})


def written(folder: Path, content: object) -> str:
    path = folder / "suite.json"
    path.write_text(json.dumps(content))
    return str(path)


def stored_reports(database: str) -> list[models.SuiteReport]:
    with reading(make_sessions(make_engine(database))) as session:
        rows = session.query(models.SuiteReport).options(undefer(models.SuiteReport.report))
        return list(rows.order_by(models.SuiteReport.id))


@pytest.mark.full
def test_json_table_and_plot_of_a_small_suite(
    cli: Cli, suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: str
) -> None:
    out, plot = tmp_path / "out.json", tmp_path / "plot.svg"
    ran = cli("bench", suite, *QUICK, "--json", "--out", str(out), "--plot", str(plot))
    assert ran.code == 0
    assert all(re.match(r"tilewise: (search|proof|finals)", line) for line in ran.err.splitlines())
    found = json.loads(ran.out)
    assert json.loads(out.read_text()) == found
    first, second, third = found["problems"]
    assert (first["problem"], first["count"]) == (SMALL, 1)
    assert first["oracle"]["peer"] == "openblas"
    low, high = first["ours"]["interval"]
    assert low <= first["ours"]["gflops"] <= high
    ratio = first["ours"]["gflops"] / first["peers"]["openblas"]["gflops"]
    assert first["ratio"] == pytest.approx(ratio)
    assert found["geomean_ratio"] == pytest.approx(ratio)
    assert (second["problem"], second["count"]) == (INTEGERS, 2)
    assert second["ours"]["gflops"] > 0
    assert second["absent"] == {"openblas": "BLAS has no i32 product"}
    assert third["ours"] is None
    assert "this machine has" in third["reason"]
    assert (found["counted"], found["left_out"]) == (1, 2)
    assert {"processor", "cores", "toolchain", "bandwidth_gbs"} <= found["machine"].keys()
    assert "OpenBLAS" in found["machine"]["peers"]["openblas"]
    drawn = marks(roofline_of_report(found))
    assert [one["who"] for one in drawn] == ["openblas", "ours", "ours"]
    ElementTree.fromstring(plot.read_text())

    def searched(*_: object) -> None:
        raise AssertionError("what is stored must not be searched for again")

    monkeypatch.setattr(local_search.queue, "create_or_join", searched)
    assert [row.report for row in stored_reports(database)] == [found]
    without = written(tmp_path, {"name": "tiny", "problems": [SMALL]})
    again = cli("bench", without, *QUICK)
    assert again.code == 0
    assert SMALL in again.out
    assert "geometric mean of the ratios to the best peer" in again.out
    assert [row.counted for row in stored_reports(database)] == [1, 1]


def test_a_report_that_cannot_be_stored_is_printed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise TilewiseError("this takes a token of scope submit")

    monkeypatch.setattr(local.LocalBackend, "store_report", refuse)
    suite = written(tmp_path, {"name": "tiny", "problems": [TOO_LARGE]})
    ran = cli("bench", suite, *QUICK, "--json")
    assert ran.code == 0 and json.loads(ran.out)["suite"] == "tiny"
    assert ran.err == ("tilewise: the report was not stored: this takes a token of scope submit\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("none.json",), "cannot read none.json"),
        (("SUITE", "--peers", "mkl"), "peer 'mkl' is not one of openblas, onednn, iree"),
        (("SUITE", "--peers", ""), "peer '' is not one of"),
        (("SUITE", "--trials", "0"), "trials=0"),
        (("SUITE", "--target", "cpu:z80"), "this machine is"),
        (("SUITE", "--out", "/nowhere/out.json"), "there is no folder /nowhere"),
        (("SUITE", "--plot", "/"), "it is a folder"),
        (("SUITE", "--db", "nonsense"), "not a database URL"),
        ((), "SUITE.json"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(
    cli: Cli, suite: str, arguments: tuple[str, ...], says: str
) -> None:
    ran = cli("bench", *(suite if one == "SUITE" else one for one in arguments))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert says in ran.err


def test_a_peer_that_is_not_installed_is_named(
    cli: Cli, suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewise.search.peers.missing_packages", lambda _name: ["torch"])
    ran = cli("bench", suite, "--peers", "onednn")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "tilewise: peer onednn needs torch; install tilewise[peers]\n"


def row(problem: str, ours: float | None, oracle: float | None, **more: Any) -> dict[str, Any]:
    speed = None if ours is None else {"gflops": ours, "interval": [ours, ours]}
    peers = {} if oracle is None else {"iree": {"gflops": oracle, "variant": "default"}}
    return {
        "problem": problem, "label": "", "count": 1, "ours": speed, "reason": "", "absent": {},
        "peers": peers, "oracle": oracle and {"peer": "iree", "gflops": oracle},
        "ratio": ours / oracle if ours and oracle else None,
    } | more  # fmt: skip


def found(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "suite": "s & t", "problems": list(rows), "counted": 1, "left_out": 0,
        "geomean_ratio": 2.0,
        "weighted": {"ours_gflops": 3.0, "oracle_gflops": 1.5, "ratio": 2.0},
        "machine": {
            "processor": "p", "target": "cpu:x,threads=1", "memory_gib": 1.0, "system": "s",
            "bandwidth_gbs": 10.0, "peak_gflops": {"f32": 100.0}, "peers": {"iree": "IREE 1"},
        },
    }  # fmt: skip


def marks(plot: Plot) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = plot.spec["layer"][-1]["data"]["values"]
    return rows


def test_the_table_stars_narrow_outputs_and_joins_equal_reasons() -> None:
    narrow = row(SMALL, 20.0, 10.0)
    narrow["peers"]["iree"]["output"] = "bf16"
    first, second = (row(p, 1.0, None, absent={"iree": "no"}) for p in (SMALL, INTEGERS))
    text = table.table(found(narrow, first, second, row(TOO_LARGE, None, None, reason="big")))
    assert "10.0*" in text
    assert "* writes a narrower type" in text
    assert f"no iree: no ({SMALL} and 1 more)" in text
    assert f"left out: big ({TOO_LARGE})" in text
    assert table.summary(narrow) == "20.0 GFLOP/s; 2.00x iree"


def test_noisy_speeds_are_marked() -> None:
    def speed(low: float) -> Any:
        found = Measurement(100.0, (low, 101.0), 1.0)
        entry = SuiteEntry(parse_problem(SMALL), 1, "a")
        return Compared(entry, found, peers={"openblas": PeerSpeed(found, "plain")}).to_json()

    assert (speed(99.0)["ours"]["quality"], speed(60.0)["ours"]["quality"]) == ("good", "noisy")
    report = {
        "machine": {"peers": {"openblas": "0.3"}, "peak_gflops": {}, "processor": "p",
                    "target": "t", "memory_gib": 1, "system": "s", "bandwidth_gbs": 1.0},
        "counted": 1, "left_out": 0, "geomean_ratio": 1.0,
        "weighted": {"ours_gflops": 1.0, "oracle_gflops": 1.0, "ratio": 1.0},
    }  # fmt: skip
    assert "~" not in table.table(report | {"problems": [speed(99.0)]})
    text = table.table(report | {"problems": [speed(60.0)]})
    assert text.count("~100.0") == 2 and "~ noisy machine" in text
