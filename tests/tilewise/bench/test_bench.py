"""`tilewise bench`: suites, comparison with peers, tables and reports."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest
from sqlalchemy.orm import undefer

from benchmarks.places import SUITES
from tests.tilewise.conftest import written
from tilewise.backends import local, local_search
from tilewise.bench import Compared, PeerSpeed, SuiteTable, table
from tilewise.bench.compare import bench_runner, compare
from tilewise.bench.suite import Suite, SuiteEntry, SuiteError, read_suite
from tilewise.cli.commands import bench
from tilewise.errors import TilewiseError, UnreadableError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import detect
from tilewise.plots import roofline_of_report
from tilewise.search.records import Measurement
from tilewise.search.runner.protocol import CandidateFailureError, PeerReply, RoundsReply, TimedWay
from tilewise.service.db import make_engine, make_sessions, models, reading

SMALL = "matmul:m=24,n=40,k=16,dtype=f32"
INTEGERS = "matmul:m=24,n=40,k=16,dtype=i32"
TOO_LARGE = "matmul:m=2000000,n=2000000,k=3,dtype=f32"
QUICK = ("--trials", "2", "--peers", "openblas")


@pytest.fixture
def suite(tmp_path: Path) -> str:
    problems = [SMALL, {"op": "matmul", "m": 24, "n": 40, "k": 16, "dtype": "i32", "count": 2},
                TOO_LARGE]  # fmt: skip
    return written(tmp_path / "suite.json", {"name": "tiny", "problems": problems})


def stored_reports(database: str) -> list[models.SuiteReport]:
    with reading(make_sessions(make_engine(database))) as session:
        rows = session.query(models.SuiteReport).options(undefer(models.SuiteReport.report))
        return list(rows.order_by(models.SuiteReport.id))


@pytest.mark.full
def test_json_table_and_plot_of_a_small_suite(cli, suite, tmp_path, monkeypatch, database) -> None:
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
    assert third["ours"] is None and "this machine has" in third["reason"]
    assert (found["counted"], found["left_out"]) == (1, 2)
    assert {"processor", "cores", "toolchain", "bandwidth_gbs"} <= found["machine"].keys()
    assert "OpenBLAS" in found["machine"]["peers"]["openblas"]
    drawn = roofline_of_report(found).spec["layer"][-1]["data"]["values"]
    assert [one["who"] for one in drawn] == ["openblas", "ours", "ours"]
    ElementTree.fromstring(plot.read_text())

    def searched(*_: object) -> None:
        raise AssertionError("what is stored must not be searched for again")

    monkeypatch.setattr(local_search.queue, "create_or_join", searched)
    assert [row.report for row in stored_reports(database)] == [found]
    without = written(tmp_path / "suite.json", {"name": "tiny", "problems": [SMALL]})
    again = cli("bench", without, *QUICK)
    assert again.code == 0 and SMALL in again.out
    assert "geometric mean of the ratios to the best peer" in again.out
    assert [row.counted for row in stored_reports(database)] == [1, 1]


def test_a_report_that_cannot_be_stored_is_printed(cli, tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> int:
        raise TilewiseError("this takes a token of scope submit")

    monkeypatch.setattr(local.LocalBackend, "store_report", refuse)
    suite = written(tmp_path / "suite.json", {"name": "tiny", "problems": [TOO_LARGE]})
    ran = cli("bench", suite, *QUICK, "--json")
    assert ran.code == 0 and json.loads(ran.out)["suite"] == "tiny"
    assert ran.err == ("tilewise: the report was not stored: this takes a token of scope submit\n")


@pytest.mark.parametrize("count", [1, 3])
def test_an_interrupt_keeps_the_rows(cli, suite, tmp_path, monkeypatch, count: int) -> None:
    row = Compared(SuiteEntry(parse_problem(SMALL)), None, "why")
    monkeypatch.setattr(bench._Bench, "_row", Mock(side_effect=[*[row] * count, KeyboardInterrupt]))
    monkeypatch.setattr(local.LocalBackend, "store_report", Mock(side_effect=KeyboardInterrupt))
    ran = cli("bench", suite, *QUICK, "--json", "-o", str(tmp_path / "out.json"))
    assert ran.code == 130
    assert ran.err.startswith(f"tilewise: measured {count} of 3 problems\n")
    written_too = json.loads((tmp_path / "out.json").read_text())
    assert [one["reason"] for one in written_too["problems"]] == ["why"] * count
    assert json.loads(ran.out) == written_too


@pytest.mark.parametrize(("arguments", "says"), [
    (("none.json",), "cannot read none.json"),
    (("SUITE", "--peers", "mkl"), "peer 'mkl' is not one of openblas, onednn, iree"),
    (("SUITE", "--peers", ""), "peer '' is not one of"), (("SUITE", "--trials", "0"), "trials=0"),
    (("SUITE", "--target", "cpu:z80"), "this machine is"),
    (("SUITE", "--out", "/nowhere/out.json"), "there is no folder /nowhere"),
    (("SUITE", "--plot", "/"), "it is a folder"),
    (("SUITE", "--db", "nonsense"), "not a database URL"), ((), "SUITE.json"),
])  # fmt: skip
def test_bad_input_is_refused_before_anything_is_measured(cli, suite, arguments, says) -> None:
    ran = cli("bench", *(suite if one == "SUITE" else one for one in arguments))
    assert says in ran.error()


def test_a_peer_that_is_not_installed_is_named(cli, suite, monkeypatch) -> None:
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


def test_the_table_stars_narrow_outputs_and_joins_equal_reasons() -> None:
    narrow = row(SMALL, 20.0, 10.0)
    narrow["peers"]["iree"]["output"] = "bf16"
    first, second = (row(p, 1.0, None, absent={"iree": "no"}) for p in (SMALL, INTEGERS))
    text = table.table(found(narrow, first, second, row(TOO_LARGE, None, None, reason="big")))
    for said in ("10.0*", "* writes a narrower type", f"no iree: no ({SMALL} and 1 more)",
                 f"left out: big ({TOO_LARGE})"):  # fmt: skip
        assert said in text
    assert table.summary(narrow) == "20.0 GFLOP/s; 2.00x iree"


def test_noisy_speeds_are_marked() -> None:
    def speed(low: float) -> Any:
        timed, entry = Measurement(100.0, (low, 101.0), 1.0), SuiteEntry(parse_problem(SMALL))
        return Compared(entry, timed, peers={"iree": PeerSpeed(timed, "plain")}).to_json()

    assert (speed(99.0)["ours"]["quality"], speed(60.0)["ours"]["quality"]) == ("good", "noisy")
    assert "~" not in table.table(found(speed(99.0)))
    text = table.table(found(speed(60.0)))
    assert text.count("~100.0") == 2 and "~ noisy machine" in text


def test_a_suite_mixes_objects_and_strings(tmp_path: Path) -> None:
    first = SuiteEntry(parse_problem("matmul:m=1,n=2,k=3,dtype=f32"), 4, "x")
    as_object = {**first.problem.to_json(), "count": 4, "label": "x"}
    suite = {"name": "mine", "source": "somewhere", "problems": [as_object, SMALL]}
    found = read_suite(Path(written(tmp_path / "suite.json", suite)))
    assert found == Suite("mine", "somewhere", (first, SuiteEntry(parse_problem(SMALL))))


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.json")), ids=lambda path: path.stem)
def test_every_suite_of_ours_can_be_read(path: Path) -> None:
    assert read_suite(path).entries


def of_one(**options: object) -> object:
    """Return a suite of one problem with these options."""
    return {"problems": [{**parse_problem(SMALL).to_json(), **options}]}


@pytest.mark.parametrize(("content", "says"), [
    ("{", "is not JSON"),
    ([SMALL], 'an object with a list "problems"'),
    ({}, 'an object with a list "problems"'),
    ({"problems": SMALL}, 'an object with a list "problems"'),
    ({"problems": []}, "problems is empty"),
    ({"name": 3, "problems": [SMALL]}, "name is not a text"),
    ({"problems": [SMALL, 7]}, r"problems\[1\]: neither a problem string nor an object"),
    ({"problems": [SMALL, "gemm:m=1"]}, r"problems\[1\]: unknown operation 'gemm'"),
    ({"problems": [{"op": "matmul", "m": 1}]}, r"problems\[0\]: matmul: n is missing"),
    ({"problems": [{"m": 1}]}, r"problems\[0\]: a problem object needs op"),
    (of_one(count=0), r"problems\[0\]: count=0 is not a whole number"),
    (of_one(count=True), r"problems\[0\]: count=True is not a whole number"),
    (of_one(label=1), r"problems\[0\]: label=1 is not a text"),
])  # fmt: skip
def test_a_bad_suite_is_refused_and_says_where(tmp_path: Path, content: object, says: str) -> None:
    path = written(tmp_path / "suite.json", content)
    with pytest.raises(SuiteError, match=says) as caught:
        read_suite(Path(path))
    assert path in str(caught.value)


def speed(entry: SuiteEntry, seconds: float) -> Measurement:
    gflops = entry.problem.flops / seconds / 1e9
    return Measurement(gflops, (gflops * 0.9, gflops * 1.1), seconds * 1e6)


# 2 GFLOP once and 1 GFLOP three times.
LARGE = SuiteEntry(parse_problem("matmul:m=1000,n=1000,k=1000,dtype=f32"), 1)
SPLIT = "matmul:m=1000,n=1000,k=1000,dtype=f32,accuracy=bf16x3"
OFTEN = SuiteEntry(parse_problem("matmul:m=1000,n=500,k=1000,dtype=f32"), 3, "often")


def compared(entry: SuiteEntry, ours_s: float, **peers_s: float) -> Compared:
    peers = {name: PeerSpeed(speed(entry, s), "way") for name, s in peers_s.items()}
    return Compared(entry, speed(entry, ours_s), peers=peers, peak_gflops=400.0)


def report(*rows: Compared) -> SuiteTable:
    suite = Suite("s", "from", tuple(one.entry for one in rows))
    return SuiteTable(suite, {"processor": "p"}, rows)


def test_the_sums_by_hand() -> None:
    found = report(
        compared(LARGE, 0.010, openblas=0.020, iree=0.040),  # 2x openblas
        compared(OFTEN, 0.010, openblas=0.008, iree=0.005),  # 0.5x iree
    )
    assert [one.oracle for one in found.rows] == ["openblas", "iree"]
    assert [one.ratio for one in found.rows] == [pytest.approx(2.0), pytest.approx(0.5)]
    assert found.geomean_ratio == pytest.approx(1.0)
    # 5 GFLOP; ours 10 + 3*10 ms; the fastest peers 20 + 3*5 ms.
    assert found.weighted == {
        "ours_gflops": pytest.approx(125.0), "oracle_gflops": pytest.approx(5 / 0.035),
        "ours_s": pytest.approx(0.040), "oracle_s": pytest.approx(0.035),
        "ratio": pytest.approx(0.875),
    }  # fmt: skip


def test_problems_without_ours_or_a_peer_do_not_count() -> None:
    not_lowered = Compared(OFTEN, None, "dtype=f16 is not lowered")
    counted, alone = compared(LARGE, 0.010, openblas=0.020), compared(OFTEN, 0.010)
    found = report(counted, not_lowered, alone).to_json()
    assert (found["counted"], found["left_out"]) == (1, 2)
    assert found["geomean_ratio"] == pytest.approx(2.0)
    assert found["weighted"]["ours_gflops"] == pytest.approx(200.0)
    _, second, third = found["problems"]
    assert (second["ours"], second["ratio"], second["reason"]) == (None, None, not_lowered.reason)
    assert (third["oracle"], third["ratio"]) == (None, None)
    assert third["ours"]["gflops"] == pytest.approx(100.0)


def test_the_json_has_the_contracts_shape() -> None:
    often, split = compared(OFTEN, 0.010, openblas=0.020), SuiteEntry(parse_problem(SPLIT))
    peaks = report(often, replace(often, entry=split, peak_gflops=900.0)).to_json()["machine"]
    assert peaks["peak_gflops"] == {"f32": 400.0, "f32 accuracy=bf16x3": 900.0}
    found = json.loads(json.dumps(report(often).to_json()))
    assert {"suite", "machine", "problems", "geomean_ratio", "weighted"} <= found.keys()
    assert found["machine"] == {"processor": "p", "peak_gflops": {"f32": 400.0}}
    (only,) = found["problems"]
    ours, peer = only.pop("ours"), only.pop("peers")["openblas"]
    assert only == {
        "problem": OFTEN.problem.canonical, "count": 3, "label": "often", "reason": "",
        "absent": {}, "schedule": None, "ratio": pytest.approx(2.0),
        "oracle": {"peer": "openblas", "gflops": pytest.approx(50.0)},
    }  # fmt: skip
    assert ours["interval"] == [pytest.approx(90.0), pytest.approx(110.0)]
    assert (ours["gflops"], ours["peak_fraction"]) == (pytest.approx(100.0), pytest.approx(0.25))
    assert peer["gflops"] == pytest.approx(50.0)


def runner(reply: Any, **peers: Any) -> Mock:
    """A runner whose peers are absent or fail as given, and that times as given."""
    replies = {name: PeerReply(("way",)) if found is None else found
               for name, found in peers.items()}  # fmt: skip

    def peer(name: str, _steps: Sequence[Any] = ()) -> PeerReply:
        if isinstance(replies[name], Exception):
            raise replies[name]
        return replies[name]

    return Mock(peer=peer, time_with_peers=Mock(side_effect=[reply]))


def way(peer: str, variant: str, seconds: float) -> TimedWay:
    return TimedWay(peer, variant, None, (seconds,) * 7)


def test_a_damaged_result_is_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"best": {"hash": "hash", "steps": []}}
    monkeypatch.setattr(bench, "tune_shown", lambda *_: found)
    run = bench._Bench(Mock(), Mock(), Mock(cache="hot"), detect(), ())
    run.backend.show.side_effect = UnreadableError("damaged")
    assert run._schedule(LARGE) == ("hash", [])


def test_the_best_way_of_each_peer_is_quoted_and_absences_are_kept() -> None:
    ways = way("onednn", "mm", 0.030), way("onednn", "linear", 0.020)
    crash = CandidateFailureError("crash", "SIGSEGV")
    none = PeerReply(absent="BLAS has no such product")
    times = runner(
        RoundsReply((0.010,) * 7, ways, {}, 300.0), openblas=none, onednn=None, iree=crash
    )
    found = compare(times, LARGE, ("hash", []), ("openblas", "onednn", "iree"))
    assert times.time_with_peers.call_args.args[1] == ["onednn"]
    assert found.absent == {"openblas": none.absent, "iree": "crash: SIGSEGV"}
    assert found.peers["onednn"].variant == "linear"
    assert found.ratio == pytest.approx(2.0)
    assert (found.schedule, found.peak_gflops) == ("hash", 300.0)


def test_a_row_of_our_own_kernel_is_not_what_we_are_compared_with() -> None:
    peers: dict[str, None] = {"iree": None, "iree+tilewise": None}
    ways = way("iree", "default", 0.020), way("iree+tilewise", "library", 0.009)
    found = compare(
        runner(RoundsReply((0.010,) * 7, ways), **peers), LARGE, ("hash", []), tuple(peers)
    )
    assert (found.peers.keys(), found.oracle) == (peers.keys(), "iree")
    assert found.ratio == pytest.approx(2.0)


def test_a_schedule_that_fails_now_is_left_out_with_the_reason() -> None:
    fails = runner(CandidateFailureError("wrong", "largest deviation 3"), openblas=None)
    found = compare(fails, LARGE, ("hash", []), ("openblas",))
    assert (found.ours, found.reason) == (None, "not measured: largest deviation 3")


def test_ours_and_a_peer_are_timed_in_one_child() -> None:
    entry = SuiteEntry(parse_problem(SMALL))
    steps = Schedule((Pack("B"), Register(1, detect().lanes("f32")))).to_json()
    with bench_runner(entry.problem, detect().canonical) as child:
        found = compare(child, entry, ("hash", list(steps)), ("openblas",), budget_s=0.05)
        assert child.peer("openblas").ways
    assert found.absent == {} and found.ours is not None
    assert 0 < found.ours.gflops < found.peak_gflops
    assert found.peers["openblas"].measurement.gflops > 0
