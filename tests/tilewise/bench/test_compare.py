import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.places import SUITES
from tilewise.bench import (
    Compared,
    PeerSpeed,
    Suite,
    SuiteEntry,
    SuiteError,
    SuiteTable,
    read_suite,
)
from tilewise.bench.compare import bench_runner, compare
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import detect
from tilewise.search.records import Measurement
from tilewise.search.runner.protocol import BesideReply, CandidateFailureError, PeerReply, TimedWay

SMALL = "matmul:m=24,n=40,k=16,dtype=f32"


def write(folder: Path, content: object) -> Path:
    path = folder / "suite.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_suite_mixes_objects_and_strings(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            "name": "mine",
            "source": "somewhere",
            "problems": [
                {"op": "matmul", "m": 1, "n": 2, "k": 3, "dtype": "f32", "count": 4, "label": "x"},
                SMALL,
            ],
        },
    )
    first = SuiteEntry(parse_problem("matmul:m=1,n=2,k=3,dtype=f32"), 4, "x")
    assert read_suite(path) == Suite("mine", "somewhere", (first, SuiteEntry(parse_problem(SMALL))))


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.json")), ids=lambda path: path.stem)
def test_every_suite_of_ours_can_be_read(path: Path) -> None:
    assert read_suite(path).entries


@pytest.mark.parametrize(
    ("content", "says"),
    [
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
        (
            {"problems": [{**parse_problem(SMALL).to_json(), "count": 0}]},
            r"problems\[0\]: count=0 is not a whole number",
        ),
        (
            {"problems": [{**parse_problem(SMALL).to_json(), "count": True}]},
            r"problems\[0\]: count=True is not a whole number",
        ),
        (
            {"problems": [{**parse_problem(SMALL).to_json(), "label": 1}]},
            r"problems\[0\]: label=1 is not a text",
        ),
    ],
)
def test_a_bad_suite_is_refused_and_says_where(tmp_path: Path, content: object, says: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(SuiteError, match=says) as caught:
        read_suite(path)
    assert str(path) in str(caught.value)


def speed(entry: SuiteEntry, seconds: float) -> Measurement:
    gflops = entry.problem.flops / seconds / 1e9
    return Measurement(gflops, (gflops * 0.9, gflops * 1.1), seconds * 1e6)


# 2 GFLOP once and 1 GFLOP three times.
LARGE = SuiteEntry(parse_problem("matmul:m=1000,n=1000,k=1000,dtype=f32"), 1)
OFTEN = SuiteEntry(parse_problem("matmul:m=1000,n=500,k=1000,dtype=f32"), 3, "often")


def row(entry: SuiteEntry, ours_s: float, **peers_s: float) -> Compared:
    peers = {name: PeerSpeed(speed(entry, s), "way") for name, s in peers_s.items()}
    return Compared(entry, speed(entry, ours_s), peers=peers, peak_gflops=400.0)


def report(*rows: Compared) -> SuiteTable:
    suite = Suite("s", "from", tuple(one.entry for one in rows))
    return SuiteTable(suite, {"processor": "p"}, rows)


def test_the_sums_by_hand() -> None:
    found = report(
        row(LARGE, 0.010, openblas=0.020, iree=0.040),  # 2x openblas
        row(OFTEN, 0.010, openblas=0.008, iree=0.005),  # 0.5x iree
    )
    assert [one.oracle for one in found.rows] == ["openblas", "iree"]
    assert [one.ratio for one in found.rows] == [pytest.approx(2.0), pytest.approx(0.5)]
    assert found.geomean_ratio == pytest.approx(1.0)
    # 5 GFLOP; ours 10 + 3*10 ms; the fastest peers 20 + 3*5 ms.
    assert found.weighted == {
        "ours_gflops": pytest.approx(125.0),
        "oracle_gflops": pytest.approx(5 / 0.035),
        "ours_s": pytest.approx(0.040),
        "oracle_s": pytest.approx(0.035),
        "ratio": pytest.approx(0.875),
    }


def test_problems_without_ours_or_a_peer_do_not_count() -> None:
    counted = row(LARGE, 0.010, openblas=0.020)
    not_lowered = Compared(OFTEN, None, "dtype=f16 is not lowered")
    alone = row(OFTEN, 0.010)
    found = report(counted, not_lowered, alone).to_json()
    assert (found["counted"], found["left_out"]) == (1, 2)
    assert found["geomean_ratio"] == pytest.approx(2.0)
    assert found["weighted"]["ours_gflops"] == pytest.approx(200.0)
    _, second, third = found["problems"]
    assert (second["ours"], second["ratio"]) == (None, None)
    assert second["reason"] == "dtype=f16 is not lowered"
    assert (third["oracle"], third["ratio"]) == (None, None)
    assert third["ours"]["gflops"] == pytest.approx(100.0)


def test_the_json_has_the_contracts_shape() -> None:
    found = json.loads(json.dumps(report(row(OFTEN, 0.010, openblas=0.020)).to_json()))
    assert {"suite", "machine", "problems", "geomean_ratio", "weighted"} <= found.keys()
    (only,) = found["problems"]
    assert only["problem"] == "matmul:m=1000,n=500,k=1000,dtype=f32"
    assert (only["count"], only["label"]) == (3, "often")
    assert only["ours"]["gflops"] == pytest.approx(100.0)
    assert only["ours"]["interval"] == [pytest.approx(90.0), pytest.approx(110.0)]
    assert only["ours"]["peak_fraction"] == pytest.approx(0.25)
    assert only["peers"]["openblas"]["gflops"] == pytest.approx(50.0)
    assert only["oracle"] == {"peer": "openblas", "gflops": pytest.approx(50.0)}
    assert only["ratio"] == pytest.approx(2.0)
    assert found["machine"] == {"processor": "p", "peak_gflops": {"f32": 400.0}}


class FakeRunner:
    """Peers that are absent or fail as told, and times as told."""

    def __init__(self, peers: dict[str, Any], reply: Any) -> None:
        self.peers, self.reply = peers, reply
        self.asked: list[str] = []

    def peer(self, name: str, _steps: Sequence[Any] = ()) -> PeerReply:
        found = self.peers[name]
        if isinstance(found, Exception):
            raise found
        return PeerReply(absent=found) if found else PeerReply(("way",))

    def beside(self, steps: list[Any], peers: list[str], budget_s: float) -> BesideReply:
        self.asked = peers
        if isinstance(self.reply, Exception):
            raise self.reply
        reply: BesideReply = self.reply
        return reply


def way(peer: str, variant: str, seconds: float) -> TimedWay:
    return TimedWay(peer, variant, None, (seconds,) * 7)


def test_the_best_way_of_each_peer_is_quoted_and_absences_are_kept() -> None:
    runner = FakeRunner(
        {"openblas": "BLAS has no such product", "onednn": None,
         "iree": CandidateFailureError("crash", "the process ended with SIGSEGV")},
        BesideReply(
            (0.010,) * 7, (way("onednn", "mm", 0.030), way("onednn", "linear", 0.020)), {}, 300.0
        ),
    )  # fmt: skip
    found = compare(runner, LARGE, ("hash", []), ("openblas", "onednn", "iree"))
    assert runner.asked == ["onednn"]
    assert found.absent == {
        "openblas": "BLAS has no such product",
        "iree": "crash: the process ended with SIGSEGV",
    }
    assert found.peers["onednn"].variant == "linear"
    assert found.ratio == pytest.approx(2.0)
    assert (found.schedule, found.peak_gflops) == ("hash", 300.0)


def test_a_row_of_our_own_kernel_is_not_what_we_are_compared_with() -> None:
    peers = ("iree", "iree+tilewise")
    ways = way("iree", "default", 0.020), way("iree+tilewise", "library", 0.009)
    runner = FakeRunner(dict.fromkeys(peers), BesideReply((0.010,) * 7, ways))
    found = compare(runner, LARGE, ("hash", []), peers)
    assert set(found.peers) == set(peers)
    assert found.oracle == "iree"
    assert found.ratio == pytest.approx(2.0)


def test_a_schedule_that_fails_now_is_left_out_with_the_reason() -> None:
    runner = FakeRunner({"openblas": None}, CandidateFailureError("wrong", "largest deviation 3"))
    found = compare(runner, LARGE, ("hash", []), ("openblas",))
    assert found.ours is None
    assert found.reason == "not measured: largest deviation 3"


def steps(rows: int = 1) -> list[Any]:
    return list(Schedule((Pack("B"), Register(rows, detect().lanes("f32")))).to_json())


def test_ours_and_a_peer_are_timed_in_one_child() -> None:
    entry = SuiteEntry(parse_problem(SMALL))
    with bench_runner(entry.problem, detect().canonical) as runner:
        found = compare(runner, entry, ("hash", steps()), ("openblas",), budget_s=0.05)
        assert runner.peer("openblas").ways
    assert found.absent == {}
    assert found.ours is not None
    assert found.ours.gflops > 0
    assert found.peers["openblas"].measurement.gflops > 0
    assert found.peak_gflops > found.ours.gflops
