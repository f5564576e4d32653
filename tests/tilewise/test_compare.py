"""`tilewise compare`: verdicts on the bests of two stores."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.tilewise.conftest import PROBLEM, Cli
from tilewise.backends import comparison, retiming
from tilewise.backends.comparison import Speed, Work
from tilewise.search.final_benchmark import pairs
from tilewise.search.runner.protocol import CandidateFailureError


def export(cli: Cli, database: str, file: Path) -> str:
    assert cli("store", "export", str(file), "--db", database).code == 0
    return str(file)


def test_a_database_and_its_archive_have_the_same_speeds(
    cli: Cli, tuned: str, tmp_path: Path
) -> None:
    file = export(cli, tuned, tmp_path / "a.zip")
    for base, new in ((tuned, file), (file, tuned), (file, file)):
        ran = cli("compare", base, new, "--json")
        (row,) = json.loads(ran.out)["problems"]
        assert ran.code == 0 and row["problem"] == PROBLEM and row["ratio"] == 1
        assert row["base"] == row["new"]


@pytest.fixture
def slowed(cli: Cli, tuned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An archive whose speeds are read as nine tenths of those of the database."""
    file = export(cli, tuned, tmp_path / "a.zip")
    speeds = comparison._speeds

    def slow(store: str) -> dict[Work, Speed]:
        share = 0.9 if store == file else 1.0
        return {
            work: Speed(100 * share, 99 * share, 101 * share, one.toolchain, one.created_at,
                        [share])
            for work, one in speeds(store).items()
        }  # fmt: skip

    monkeypatch.setattr(comparison, "_speeds", slow)
    return file


def test_a_regression_is_code_1_and_a_failure_in_junit(
    cli: Cli, tuned: str, slowed: str, tmp_path: Path
) -> None:
    xml = tmp_path / "compare.xml"
    ran = cli("compare", tuned, slowed, "--junit", str(xml))
    assert ran.code == 1 and "1 of 1 problems became slower" in ran.err
    assert "0.900  slower" in ran.out and "1 slower" in ran.out
    suite: Any = ElementTree.parse(xml).getroot()
    assert suite.get("failures") == "1" and suite.find("testcase/failure") is not None
    assert cli("compare", slowed, tuned, "--json").code == 0
    assert "faster" in cli("compare", slowed, tuned).out
    assert cli("compare", tuned, slowed, "--tolerance", "0.2").code == 0


@pytest.mark.parametrize(
    ("ratio", "change", "verdict", "code", "reason"),
    [
        (0.9, {}, "slower", 1, None),
        (1.0, {}, "same", 0, None),
        (1.1, {}, "faster", 0, None),
        (1.0, {"toolchain": "older"}, "slower", 1, "the stored toolchains differ"),
        (1.0, {"steps": [1.0]}, "same", 0, "the same schedule and toolchain"),
        (1.0, {"steps": [1.0], "toolchain": "older"}, "slower", 1, "the same schedule"),
        (None, {}, "slower", 1, "cannot be timed: timeout"),
        (1.0, {"target": "cpu:znver1,threads=1"}, "slower", 1, "cannot time cpu:znver1"),
    ],
)
def test_the_ratio_of_a_pair_that_is_timed_again_decides(
    cli: Cli, tuned: str, slowed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ratio: float | None, change: dict[str, Any], verdict: str, code: int, reason: str | None,
) -> None:  # fmt: skip
    def time_pair(*_: object) -> pairs.PairTiming:
        if ratio is None:
            raise CandidateFailureError("timeout", "timeout")
        return pairs.PairTiming(ratio, (ratio - 0.01, ratio + 0.01), 2)

    speeds, xml = comparison._speeds, tmp_path / "compare.xml"
    target = change.pop("target", None)

    def changed(store: str) -> dict[Work, Speed]:
        return {
            (work[0], target or work[1], work[2]): replace(one, **change if store == slowed else {})
            for work, one in speeds(store).items()
        }

    monkeypatch.setattr(retiming, "time_pair", time_pair)
    monkeypatch.setattr(comparison, "_speeds", changed)
    ran = cli("compare", tuned, slowed, "--retime", "--json", "--junit", str(xml))
    (row,) = json.loads(ran.out)["problems"]
    assert (row["verdict"], ran.code) == (verdict, code)
    assert reason in row["reason"] if reason else row["reason"] is None
    is_timed = row["timed_again"] is not None
    assert is_timed == (reason is None or "toolchains differ" in reason)
    assert row["ratio"] == (ratio if is_timed and not change else 0.9)
    suite: Any = ElementTree.parse(xml).getroot()
    assert suite.get("failures") == str(code)
    told = cli("compare", tuned, slowed, "--retime").out
    assert f"{int(is_timed)} timed again" in told and (not reason or reason in told)


def test_stores_that_share_no_problem_are_code_3(
    cli: Cli, tuned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_speeds", lambda _store: {})
    ran = cli("compare", tuned, "postgresql+psycopg://me:secret@db.example/results")
    assert ran.code == 3 and ran.err.count("\n") == 1 and not ran.out
    assert "db.example" in ran.err and "secret" not in ran.err


def test_what_is_no_store_is_bad_input(cli: Cli, tuned: str, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_text("x")
    absent = tmp_path / "absent.db"
    for store in (tmp_path / "x.zip", tmp_path / "no.zip", tmp_path, f"sqlite:///{absent}"):
        ran = cli("compare", tuned, str(store))
        assert ran.code == 2 and ran.err.count("\n") == 1
    assert not absent.exists()
    for option, value in (("--tolerance", "1"), ("--seconds", "0")):
        assert cli("compare", tuned, tuned, option, value).code == 2
