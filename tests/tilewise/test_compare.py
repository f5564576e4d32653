"""`tilewise compare`: verdicts on the bests of two stores."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.tilewise.conftest import PROBLEM, Cli
from tilewise.backends import comparison
from tilewise.backends.comparison import Speed, Work


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
            work: Speed(100 * share, 99 * share, 101 * share, one.toolchain, one.created_at)
            for work, one in speeds(store).items()
        }

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
    assert cli("compare", tuned, tuned, "--tolerance", "1").code == 2
