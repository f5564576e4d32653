"""Commands on stores: export and import, shipped schedules, comparison, tokens, pruning."""

import json
import os
import re
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from sqlalchemy import select

from tests.service.archive.forging import edited
from tests.service.archive.stores import Search, ask, opened_store
from tests.tilewise.conftest import PROBLEM, Cli, written
from tilewise.backends import comparison, retiming
from tilewise.backends.comparison import Speed, Work
from tilewise.bench.suite import read_suite
from tilewise.kernels.system.toolchain import identity
from tilewise.search.final_benchmark import pairs
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.service.archive import builtin
from tilewise.service.db import make_engine, make_sessions, models, writing
from tilewise.service.jobs import retention
from tilewise.service.results import history

COUNTS = {"jobs": 1, "trials": 4, "schedules": 1, "problems": 1, "toolchains": 1, "machines": 1,
          "history": 0, "suites": 0, "models": 0, "ranges": 0}  # fmt: skip


def test_a_store_moves_to_another_database(cli: Cli, tuned: str, tmp_path: Path) -> None:
    file, other = str(tmp_path / "a.zip"), f"sqlite:///{tmp_path / 'other.db'}"
    told = cli("store", "export", file, "--db", tuned, "--json").json
    assert told == {"file": file, "rows": COUNTS, "left_out": {}}
    dry = cli("store", "import", file, "--dry-run", "--db", other, "--json").json
    assert dry["dry_run"] and dry["added"]["trials"] == 4
    made = cli("store", "import", file, "--db", other, "--json").json
    assert {**made, "dry_run": True} == dry
    again = cli("store", "import", file, "--db", other)
    lines = dict(line.split("  ", 1) for line in again.out.splitlines())
    assert lines["added"].strip() == "none" and "4 trials" in lines["known"]
    shown = [cli("show", PROBLEM, "--db", url, "--json") for url in (tuned, other)]
    assert shown[0].code == shown[1].code == 0 and shown[0].out == shown[1].out
    with opened_store(tuned) as sessions:
        ask(sessions, Search("matmul:m=9,n=9,k=9,dtype=f32", toolchain=identity()))
    given = (export(cli, tuned, tmp_path / "b.zip"), "--resume", "--db", other, "--json")
    assert cli("store", "import", *given).json["resumed_jobs"] == 1


def test_look_ups_name_the_origin_of_what_was_imported(cli, tuned, tmp_path) -> None:
    """The first name stays when others export the result again."""
    urls = [tuned, *(f"sqlite:///{tmp_path / name}.db" for name in "ab")]
    for number, (source, into) in enumerate(pairwise(urls)):
        file = str(tmp_path / f"{number}.zip")
        export = ("store", "export", file, "--best", "--origin", f"publisher {number}")
        assert cli(*export, "--db", source).code == 0
        assert cli("store", "import", file, "--db", into).code == 0
    shown = [cli("show", PROBLEM, "--db", url, "--json").json for url in urls]
    assert [one["origin"] for one in shown] == [None, "publisher 0", "publisher 0"]
    assert "origin    publisher 0\n" in cli("show", PROBLEM, "--db", urls[1]).out


@pytest.mark.parametrize(("code", "selecting"), [
    *((2, ("--problem", text)) for text in ("m=64,n=48", "matmul:m=1,n=1,k=1,dtype=f33")),
    *((2, (f"--{name}", text))
      for name, text in (("kind", "sort"), ("dtype", "f33"), ("target", "vax"))),
    *((2, ("--since", text)) for text in ("yesterday", "2026-02-30",
                                          "9999-12-31T23:59:59-14:00",
                                          "0001-01-01T00:00:00+14:00")),
    *((2, ("--origin", text)) for text in ("", "two\nlines")),
    *((2, (f"--{name}",)) for name in ("resume", "dry-run")),
    (3, ("--kind", "conv2d")), (3, ("--since", "2999-01-01")),
])  # fmt: skip
def test_a_selection_that_makes_no_sense_or_selects_nothing(cli, tuned, tmp_path, code, selecting):
    said = cli("store", "export", str(tmp_path / "a.zip"), *selecting, "--db", tuned).error(code)
    assert code == 2 or " ".join(selecting)[:9] in said
    assert not (tmp_path / "a.zip").exists()


def test_what_is_no_archive_or_cannot_be_written_is_bad_input(cli, tuned, tmp_path) -> None:
    for file in (tmp_path, tmp_path / "no" / "a.zip"):
        cli("store", "export", str(file), "--db", tuned).error()
    wrong, absent = written(tmp_path / "a.zip", "x"), tmp_path / "absent.db"
    for file in (wrong, str(tmp_path / "absent.zip"), str(tmp_path)):
        assert file in cli("store", "import", file, "--db", tuned).error()
    of_none = "--db", f"sqlite:///{absent}"
    assert cli("store", "import", wrong, *of_none).code == 2
    assert "so nothing is stored" in cli("store", "export", wrong, *of_none).error(3)
    assert not absent.exists() and Path(wrong).read_text() == "x"
    assert cli("store", "import", wrong, "--since", "2026-01-01").code == 2


def test_an_export_that_fails_leaves_the_file_as_it_was(cli, tuned, tmp_path, monkeypatch) -> None:
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
def test_shipped_schedules_are_small_and_answer_look_ups(cli, monkeypatch, table: Path) -> None:
    """They are never of the present toolchain where that differs from the publisher's."""
    assert sum(one.stat().st_size for one in TABLES) <= 3 << 20
    monkeypatch.setattr(builtin, "name_here", lambda: table.stem)
    made = cli("store", "import", "builtin", "--json").json
    assert made["added"]["schedules"] >= 140 and made["file"] == str(table)
    target = f"cpu:{table.stem},threads=1"
    wanted = [entry.problem.canonical for entry in read_suite(COMMON).entries]
    shown = [cli("show", problem, "--target", target, "--json") for problem in wanted[:5]]
    found = [json.loads(one.out) for one in shown if one.code == 0]
    for one in found:
        kind = "exact" if one["toolchain"] == identity() else "toolchain"
        assert one["match"]["kind"] == kind and one["origin"].startswith("Tilewise ")
        assert one["machine"]["host"] == f"common-{table.stem}", "no host of a publisher is named"
    assert len(found) >= 3
    other = f"{target},features=-avx512vnni"
    assert cli("show", wanted[0], "--target", other).code == 3, "it may not run there"


@pytest.mark.parametrize("is_damaged", [False, True])
def test_archives_that_are_not_shipped_or_damaged(cli, monkeypatch, tmp_path, is_damaged) -> None:
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


def export(cli: Cli, database: str, file: Path) -> str:
    assert cli("store", "export", str(file), "--db", database).code == 0
    return str(file)


def test_a_database_and_its_archive_have_and_select_the_same_speeds(cli, tuned, tmp_path) -> None:
    file = export(cli, tuned, tmp_path / "a.zip")
    for base, new in ((tuned, file), (file, tuned), (file, file)):
        (row,) = cli("compare", base, new, "--json").json["problems"]
        found = row["problem"], row["ratio"], row["verdict"], row["base"]
        assert found == (PROBLEM, 1, "same", row["new"])
    with writing(make_sessions(make_engine(tuned))) as session:
        row = session.scalars(select(models.Schedule)).one()
        chosen = (f"machine={row.machine.host}#toolchain={row.toolchain.identity[:9]}",
                  f"before={(row.created_at + timedelta(hours=1)).isoformat()}")  # fmt: skip
        history.supersede(session, row)
        row.created_at += timedelta(days=1)
    none = [(3, f"{key}=x") for key in ("machine", "toolchain")] + [(3, "before=2026-01-01")]
    for store in (tuned, export(cli, tuned, tmp_path / "b.zip")):
        assert all(cli("compare", f"{store}#{one}", tuned).code == 0 for one in chosen)
        for code, one in (*none, (2, "before=x"), (2, "model=x")):
            assert one.split("=")[0] in cli("compare", tuned, f"{store}#{one}").error(code)


@pytest.fixture
def slowed(cli: Cli, tuned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An archive whose speeds are read as nine tenths of those of the database."""
    file = export(cli, tuned, tmp_path / "a.zip")
    speeds = comparison._speeds

    def slow(store: str) -> dict[Work, Speed]:
        share = 0.9 if store == file else 1.0
        given = (100 * share, 99 * share, 101 * share)
        return {work: Speed(*given, one.toolchain, one.host, one.created_at, [share])
                for work, one in speeds(store).items()}  # fmt: skip

    monkeypatch.setattr(comparison, "_speeds", slow)
    return file


def test_a_regression_is_code_1_and_a_failure_in_junit(cli, tuned, slowed, tmp_path) -> None:
    xml = tmp_path / "compare.xml"
    ran = cli("compare", tuned, slowed, "--junit", str(xml))
    assert ran.code == 1 and "1 of 1 problems became slower" in ran.err
    assert "0.900  slower" in ran.out and "1 slower" in ran.out
    assert "0 only in base, 0 only in new;" in ran.out
    suite: Any = ElementTree.parse(xml).getroot()
    assert suite.get("failures") == "1" and suite.find("testcase/failure") is not None
    assert [one.get("value") for one in suite.iter("property")] == ["0", "0"], "only in one store"
    assert cli("compare", slowed, tuned, "--json").code == 0
    assert "faster" in cli("compare", slowed, tuned).out
    assert cli("compare", tuned, slowed, "--tolerance", "0.2").code == 0


@pytest.mark.parametrize(("ratio", "change", "verdict", "code", "reason"), [
    (0.9, {}, "slower", 1, None), (1.0, {}, "same", 0, None), (1.1, {}, "faster", 0, None),
    (1.0, {"toolchain": "older"}, "slower", 1, "the stored toolchains differ"),
    (1.0, {"steps": [1.0]}, "same", 0, "the same schedule and toolchain"),
    (1.0, {"steps": [1.0], "toolchain": "older"}, "slower", 1, "the same schedule"),
    (None, {}, "slower", 1, "cannot be timed: timeout"),
    (1.0, {"target": "cpu:znver1,threads=1"}, "slower", 1, "cannot time cpu:znver1"),
    (1.0, {"host": "other"}, "same", 0, None), (0.97, {}, "slower", 1, "give more --seconds"),
])  # fmt: skip
def test_the_ratio_of_a_pair_that_is_timed_again_decides(
    cli: Cli, tuned: str, slowed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    ratio: float | None, change: dict[str, Any], verdict: str, code: int, reason: str | None,
) -> None:  # fmt: skip
    def time_pair(*_: object) -> pairs.PairTiming:
        if ratio is None:
            raise CandidateFailureError("timeout", "timeout \x1b[31m")  # which is no XML
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
    assert is_timed == any(one in str(reason) for one in ("None", "toolchains differ", "--seconds"))
    assert row["ratio"] == (0.9 if reason else ratio)
    elsewhere = f"timed on different machines: {row['base']['host']} and other"
    assert (elsewhere in cli("compare", tuned, slowed).out) == ("host" in change)
    suite: Any = ElementTree.parse(xml).getroot()
    assert suite.get("failures") == str(code)
    told = cli("compare", tuned, slowed, "--retime").out
    assert f"{int(is_timed)} timed again" in told and (not reason or reason in told)


def test_stores_that_cannot_be_compared(cli: Cli, tuned: str, tmp_path, monkeypatch) -> None:
    wrong, absent = written(tmp_path / "x.zip", "x"), tmp_path / "absent.db"
    for store in (wrong, tmp_path / "no.zip", tmp_path, f"sqlite:///{absent}"):
        cli("compare", tuned, str(store)).error()
    assert not absent.exists()
    file = export(cli, tuned, tmp_path / "edited.zip")
    edited(Path(file), "schedules.jsonl", lambda lines: lines[0].update(gflops=999.0))
    assert "schedules.jsonl line 1: its values do not" in cli("compare", tuned, file).error()
    for option, value in (("--tolerance", "1"), ("--seconds", "0")):
        assert cli("compare", tuned, tuned, option, value).code == 2
    file = str(tmp_path / "no" / "file")
    for command in (("compare", wrong, wrong, "--junit"), ("predictor", "train", wrong, "-o")):
        assert f"no folder {tmp_path / 'no'}" in cli(*command, file).error(), "before any work"
    monkeypatch.setattr(comparison, "_speeds", lambda _store: {})
    said = cli("compare", tuned, "postgresql+psycopg://me:secret@db.example/results").error(3)
    assert "db.example" in said and "secret" not in said, "they share no problem"


def test_a_token_is_made_shown_once_and_revoked(cli: Cli, database: str) -> None:
    made = cli("token", "create", "ci", "--scope", "read", "--days", "7")
    assert re.fullmatch(r"tw_[A-Za-z0-9_-]{43}\n", made.out) and "shown only once" in made.err
    listed = cli("token", "list")
    assert made.out.strip() not in listed.out
    assert listed.out.splitlines()[1].split()[:2] == ["ci", "read"]
    assert cli("token", "revoke", "ci").out == "ci is revoked\n"
    (row,) = cli("token", "list", "--json").json["tokens"]
    assert row["revoked"] and row["expires"]
    again = cli("token", "create", "ci", "--scope", "read")
    assert again.code == 1 and "there is a token 'ci' already" in again.err


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (("create",), 2, "needs a NAME"), (("create", "x"), 2, "needs --scope"),
    (("create", "x", "--scope", "root"), 2, "invalid choice"),
    (("create", "a b", "--scope", "read"), 2, "name="),
    (("create", "x", "--scope", "read", "--days", "0"), 2, "days="),
    (("create", "x", "--scope", "read", "--days", "nan"), 2, "days="),
    (("list", "x"), 2, "takes no NAME"), (("list", "--scope", "read"), 2, "takes no --scope"),
    (("revoke", "nobody"), 3, "there is no token 'nobody'"), (("revoke",), 2, "needs a NAME"),
])  # fmt: skip
def test_wrong_token_commands(cli: Cli, arguments: tuple[str, ...], code: int, said: str) -> None:
    ran = cli("token", *arguments)
    assert ran.code == code and said in ran.err and len(ran.err.splitlines()) == 1


def test_tokens_of_a_service_take_scope_admin(cli, served_as_stored, tuned, monkeypatch) -> None:
    at = ("--server", served_as_stored)
    refused = cli("token", "list", *at)
    assert refused.code == 1 and "scope admin" in refused.err
    token = cli("token", "create", "root", "--scope", "admin", "--db", tuned).out.strip()
    monkeypatch.setenv("TILEWISE_TOKEN", token)
    made = cli("token", "create", "ci", "--scope", "read", *at)
    assert made.code == 0 and made.out.startswith("tw_")
    here, there = (
        [line.split()[:2] for line in cli("token", "list", *where).out.splitlines()]
        for where in (("--db", tuned), at)
    )
    assert here == there
    assert cli("token", "revoke", "ci", *at).code == 0
    assert cli("token", "revoke", "nobody", *at).code == 3
    monkeypatch.setenv("TILEWISE_TOKEN", made.out.strip())
    gone = cli("show", "matmul:m=64,n=48,k=32,dtype=f32", *at)
    assert gone.code == 1 and "revoked" in gone.err and made.out.strip() not in gone.err


def test_old_samples_are_thinned(cli: Cli, tuned: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("db", "prune", "--older-than", "0", "--dry-run", "--json", "--db", tuned).json == {
        "dry_run": True, "trials": 0, "samples": 0, "bytes": 0, "keys": 0, "workers": 0,
        "plans": 0, "unkept_results": 0,
    }  # fmt: skip
    assert cli("db", "prune", "--vacuum", "--db", tuned).code == 0

    def give_back(_engine: Any, give_back: Any = retention.give_back) -> None:
        with writing(make_sessions(make_engine(tuned))):
            give_back(make_engine(tuned, patience_s=0.05))

    monkeypatch.setattr(retention, "give_back", give_back)
    done = cli("db", "prune", "--vacuum", "--db", tuned)
    assert done.code == 1 and "unkept" in done.out and "is locked by another process" in done.err
