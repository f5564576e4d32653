import json
import os
from itertools import pairwise
from pathlib import Path

import pytest

from tests.tilewise.conftest import PROBLEM, Cli
from tilewise.bench.suite import read_suite
from tilewise.kernels.system.toolchain import identity
from tilewise.service.archive import builtin

COUNTS = {"jobs": 1, "trials": 4, "schedules": 1, "problems": 1, "toolchains": 1, "machines": 1}


def test_a_store_moves_to_another_database(cli: Cli, tuned: str, tmp_path: Path) -> None:
    file, other = str(tmp_path / "a.zip"), f"sqlite:///{tmp_path / 'other.db'}"
    told = json.loads(cli("store", "export", file, "--db", tuned, "--json").out)
    none = {"history": 0, "suites": 0, "models": 0, "ranges": 0}
    assert told == {"file": file, "rows": {**COUNTS, **none}, "left_out": {}}
    dry = json.loads(cli("store", "import", file, "--dry-run", "--db", other, "--json").out)
    assert dry["dry_run"] and dry["added"]["trials"] == 4
    made = json.loads(cli("store", "import", file, "--db", other, "--json").out)
    assert {**made, "dry_run": True} == dry
    again = cli("store", "import", file, "--db", other)
    assert again.code == 0 and not again.err
    lines = dict(line.split("  ", 1) for line in again.out.splitlines())
    assert lines["added"].strip() == "none" and "4 trials" in lines["known"]
    shown = [cli("show", PROBLEM, "--db", url, "--json") for url in (tuned, other)]
    assert shown[0].code == shown[1].code == 0 and shown[0].out == shown[1].out


def test_look_ups_name_the_origin_of_what_was_imported(
    cli: Cli, tuned: str, tmp_path: Path
) -> None:
    """The first name stays when others export the result again."""
    urls = [tuned, *(f"sqlite:///{tmp_path / name}.db" for name in "ab")]
    for number, (source, into) in enumerate(pairwise(urls)):
        file = str(tmp_path / f"{number}.zip")
        export = ("store", "export", file, "--best", "--origin", f"publisher {number}")
        assert cli(*export, "--db", source).code == 0
        assert cli("store", "import", file, "--db", into).code == 0
    shown = [json.loads(cli("show", PROBLEM, "--db", url, "--json").out) for url in urls]
    assert [one["origin"] for one in shown] == [None, "publisher 0", "publisher 0"]
    assert "origin    publisher 0\n" in cli("show", PROBLEM, "--db", urls[1]).out


@pytest.mark.parametrize(
    "selecting",
    [
        ("--problem", "m=64,n=48"),
        ("--problem", "matmul:m=1,n=1,k=1,dtype=f33"),
        ("--kind", "sort"),
        ("--dtype", "f33"),
        ("--target", "vax"),
        ("--since", "yesterday"),
        ("--since", "2026-02-30"),
        ("--since", "9999-12-31T23:59:59-14:00"),
        ("--since", "0001-01-01T00:00:00+14:00"),
        ("--origin", ""),
        ("--origin", "two\nlines"),
        ("--resume",),
        ("--dry-run",),
    ],
)
def test_a_selection_that_makes_no_sense(
    cli: Cli, tuned: str, tmp_path: Path, selecting: tuple[str, ...]
) -> None:
    ran = cli("store", "export", str(tmp_path / "a.zip"), *selecting, "--db", tuned)
    assert ran.code == 2 and len(ran.err.splitlines()) == 1 and not (tmp_path / "a.zip").exists()


@pytest.mark.parametrize("absent", [("--kind", "conv2d"), ("--since", "2999-01-01")])
def test_a_selection_of_nothing_is_code_3(
    cli: Cli, tuned: str, tmp_path: Path, absent: tuple[str, ...]
) -> None:
    ran = cli("store", "export", str(tmp_path / "a.zip"), *absent, "--db", tuned)
    assert ran.code == 3 and ran.err.count("\n") == 1 and " ".join(absent)[:9] in ran.err
    assert not (tmp_path / "a.zip").exists()


def test_what_is_no_archive_is_bad_input(cli: Cli, tuned: str, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("x")
    for file in (tmp_path / "a.zip", tmp_path / "absent.zip", tmp_path):
        ran = cli("store", "import", str(file), "--db", tuned)
        assert ran.code == 2 and len(ran.err.splitlines()) == 1 and str(file) in ran.err
    absent = tmp_path / "absent.db"
    assert cli("store", "import", str(tmp_path / "a.zip"), "--db", f"sqlite:///{absent}").code == 2
    assert not absent.exists()
    assert cli("store", "import", str(tmp_path / "a.zip"), "--since", "2026-01-01").code == 2


def test_an_export_that_cannot_be_written(cli: Cli, tuned: str, tmp_path: Path) -> None:
    for file in (tmp_path, tmp_path / "no" / "a.zip"):
        ran = cli("store", "export", str(file), "--db", tuned)
        assert ran.code == 2 and len(ran.err.splitlines()) == 1


def test_an_export_that_fails_leaves_the_file_as_it_was(
    cli: Cli, tuned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.zip"
    file.write_text("the one before")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    ran = cli("store", "export", str(file), "--db", tuned)
    assert ran.code == 1 and "No space left" in ran.err and len(ran.err.splitlines()) == 1
    assert file.read_text() == "the one before" and list(tmp_path.glob(".*")) == []


TABLES = sorted(builtin.TABLES.glob("*.zip"))
COMMON = Path(__file__).parents[2] / "benchmarks" / "data" / "suites" / "common.json"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_shipped_schedules_answer_look_ups(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, table: Path
) -> None:
    """They are never of the present toolchain where that differs from the publisher's."""
    monkeypatch.setattr(builtin, "name_here", lambda: table.stem)
    made = json.loads(cli("store", "import", "builtin", "--json").out)
    assert made["added"]["schedules"] >= 140 and made["file"] == str(table)
    target = f"cpu:{table.stem},threads=1"
    wanted = [entry.problem.canonical for entry in read_suite(COMMON).entries]
    shown = [cli("show", problem, "--target", target, "--json") for problem in wanted[:12]]
    found = [json.loads(one.out) for one in shown if one.code == 0]
    for one in found:
        kind = "exact" if one["toolchain"] == identity() else "toolchain"
        assert one["match"]["kind"] == kind and one["origin"].startswith("Tilewise ")
        assert one["machine"]["host"] == f"common-{table.stem}", "no host of a publisher is named"
    assert len(found) > 8
    other = f"{target},features=-avx512vnni"
    assert cli("show", wanted[0], "--target", other).code == 3, "it may not run there"


def test_shipped_schedules_are_small() -> None:
    assert TABLES and sum(table.stat().st_size for table in TABLES) <= 3 << 20


@pytest.mark.parametrize("is_damaged", [False, True])
def test_archives_that_are_not_shipped_or_damaged(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_damaged: bool
) -> None:
    content = bytearray(TABLES[0].read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "other.zip").write_bytes(content)
    monkeypatch.setattr(builtin, "TABLES", tmp_path)
    monkeypatch.setattr(builtin, "name_here", lambda: "other" if is_damaged else "i486")
    ran = cli("store", "import", "builtin")
    assert ran.code == 2 and ran.err.count("\n") == 1
    assert ("other.zip" in ran.err and "nothing was changed" in ran.err) == is_damaged
    assert ("shipped for i486; archives: builtin:other" in ran.err) != is_damaged
    assert (tmp_path / "results.db").exists() == is_damaged
