import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from tests.tilewise.conftest import PROBLEM, Cli, Ran
from tilewise import errors
from tilewise.cli import tuning
from tilewise.cli.tuning import missing, tune_missing
from tilewise.errors import BadInputError, MissingError, TilewiseError, UnreadableError
from tilewise.fetch.lock import Lock
from tilewise.fetch.update import Update
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import detect
from tilewise.search.errors import RunnerError
from tilewise.search.records import TuneRequest
from tilewise.service.db import make_engine, make_sessions, models, writing
from tilewise.service.results import scripts
from tilewise.service.results.integrity import proof_digest
from tilewise.service.results.stored import ResultKey

ABSENT = "matmul:m=8,n=8,k=8,dtype=f32"
UNKNOWN = "matmul:m=9,n=9,k=9,dtype=f32"
NAME = "matmul_m64_n48_k32_f32"
SCRIPT = f"{NAME}.cpu.mlir"


class Place:
    """A folder with its list and its lock file."""

    def __init__(self, cli: Cli, path: Path, where: tuple[str, ...]) -> None:
        self.cli, self.path, self.where = cli, path, where
        self.list, self.folder = path / "list.txt", path / "scripts"
        self.lock = path / "tilewise.lock"
        self.list.write_text(f"{PROBLEM}\n")

    def fetch(self, *options: str) -> Ran:
        return self.cli("fetch", str(self.list), "-o", str(self.folder), *self.where, *options)

    def frozen(self, *options: str) -> Ran:
        """Fetch with `--frozen` from a service or store that need not be there."""
        return self.cli("fetch", str(self.list), "-o", str(self.folder), "--frozen", *options)

    def command(self, *options: str) -> list[str]:
        """Return the command line of a fetch in a process of its own."""
        return [sys.executable, "-m", "tilewise", "fetch", str(self.list), "-o", str(self.folder),
                *self.where, *options]  # fmt: skip

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.folder.iterdir())}

    def entries(self) -> Any:
        return Lock.parse(self.lock.read_text(), "lock").entries


Made = Callable[[str], Place]


@pytest.fixture(params=[pytest.param("service", marks=pytest.mark.full), "database"])
def make_place(request, cli, tuned, tmp_path, monkeypatch) -> Made:
    """Makes a place that fetches from the database, or from a service of a fixture on it."""
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))

    def make(service: str) -> Place:
        is_at_service = request.param == "service"
        where = ("--server", request.getfixturevalue(service)) if is_at_service else ("--db", tuned)
        return Place(cli, tmp_path, where)

    return make


@pytest.fixture
def place(make_place: Made) -> Place:
    return make_place("served_as_stored")


def test_scripts_are_fetched_and_locked_and_left_alone_if_unchanged(place: Place, cli: Cli) -> None:
    ran = place.fetch()
    assert ran == Ran(0, "1 written, 0 unchanged, 0 removed, 0 missing\n", "")
    script = cli("script", PROBLEM, *place.where).out
    assert place.files() == {SCRIPT: script}
    shown = cli("show", PROBLEM, "--json", *place.where).json
    (entry,) = place.entries().values()
    assert (entry.problem, entry.key, entry.kind) == (PROBLEM, shown["key"], "cpu")
    assert (entry.target, entry.toolchain) == (shown["target"], shown["toolchain"])
    assert entry.sha256 == shown["proof"]["sha256"] and entry.etag is None
    assert entry.schedule == shown["proof"]["hash"]
    assert entry.gflops == round(shown["proof"]["gflops"], 2) and len(entry.interval) == 2
    place.fetch("--kernels")
    before = {path: path.stat().st_mtime_ns for path in [*place.folder.iterdir(), place.lock]}
    assert len(before) == 3
    ran = place.fetch("--kernels")
    assert ran.out == "0 written, 2 unchanged, 0 removed, 0 missing\n"
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("is_locked", [True, pytest.param(False, marks=pytest.mark.full)])
def test_an_edited_file_is_replaced_only_where_that_is_said(place: Place, is_locked: bool) -> None:
    place.fetch()
    whole, lock = place.files(), place.lock.read_text()
    edited = {**whole, SCRIPT: "edited"}
    (place.folder / SCRIPT).write_text("edited")
    if not is_locked:
        place.lock.unlink()
    ran = place.fetch("--kernels")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert str(place.folder / SCRIPT) in ran.err and "--overwrite" in ran.err
    assert place.files() == edited and place.lock.exists() == is_locked
    ran = place.fetch("--overwrite")
    assert (ran.code, place.files(), place.lock.read_text()) == (0, whole, lock)


def test_a_text_or_a_speed_of_another_time_changes_nothing(place, tuned, monkeypatch) -> None:
    place.fetch()
    whole, lock = place.files(), place.lock.read_text()
    (entry,) = place.entries().values()
    place.lock.write_text(lock.replace(entry.sha256, "0" * 64))  # as of another checkout
    assert (place.fetch().code, place.files(), place.lock.read_text()) == (0, whole, lock)
    place.lock.unlink()
    ask = Update.ask

    def ask_earlier(self: Update) -> None:  # before a faster script was stored
        ask(self)
        ((problem, found),) = self.answers
        slower = replace(found.result, proof=replace(found.result.proof, gflops=1.0))
        files = {"cpu": replace(found.files["cpu"], etag="0" * 64)}
        self.answers = [(problem, replace(found, result=slower, files=files))]

    with monkeypatch.context() as earlier:
        earlier.setattr(Update, "ask", ask_earlier)
        place.fetch()
    assert place.lock.read_text() == lock
    sessions = make_sessions(make_engine(tuned))
    with writing(sessions) as session:  # of another search, which found the same script again
        session.query(models.Schedule).update({"elapsed_s": 99.0})
    place.fetch()
    assert place.lock.read_text() == lock


def test_what_is_not_wanted_any_more_goes_unless_it_was_edited(place: Place) -> None:
    place.fetch("--kernels")
    (place.folder / "mine.txt").write_text("not of fetch")
    ran = place.fetch()
    assert ran.out == "0 written, 1 unchanged, 1 removed, 0 missing\n"
    assert set(place.files()) == {SCRIPT, "mine.txt"} and list(place.entries()) == [SCRIPT]
    place.fetch("--kernels")
    (place.folder / f"{NAME}.py").write_text("edited")
    reported = json.loads(place.fetch("--json").out)["files"]
    states = {one["path"]: one["state"] for one in reported}
    assert states == {SCRIPT: "unchanged", f"{NAME}.py": "left"}
    assert place.files()[f"{NAME}.py"] == "edited"


def test_what_is_not_stored_or_made_is_named_and_costs_no_other_file(place, monkeypatch) -> None:
    monkeypatch.setattr(scripts, "attempt", Mock(side_effect=UnsupportedError("none of batches")))
    place.list.write_text(f"{ABSENT}\n{PROBLEM}\n")
    ran = place.fetch("--flavor", "cpu", "--flavor", "air")
    assert ran.code == 3 and ABSENT in ran.err and "--tune-missing" in ran.err
    assert "none of batches" in ran.err
    assert list(place.files()) == [SCRIPT] and list(place.entries()) == [SCRIPT]
    reported = json.loads(place.fetch("--json").out)["files"]
    states = {one["problem"]: one["state"] for one in reported}
    assert states == {ABSENT: "missing", PROBLEM: "unchanged"}
    (place.folder / SCRIPT).unlink()
    monkeypatch.setattr("tilewise.fetch.update._why_missing", lambda *_: "it is proven again")
    assert place.fetch().code == 3 and list(place.entries()) == [SCRIPT] and not place.files()


def test_a_search_that_is_refused_or_fails_affects_no_other(capsys, monkeypatch) -> None:
    monkeypatch.setattr(tuning, "AHEAD", 2)
    too_large, limit = BadInputError("too large"), TilewiseError("limit reached")
    backend, problems = Mock(), [parse_problem(one) for one in (ABSENT, UNKNOWN, PROBLEM)]
    backend.peak.return_value, backend.submit.side_effect = None, [too_large, limit, None] * 2
    backend.tune.side_effect = [too_large, RunnerError("no child"), {}]
    tune_missing(backend, problems, "host", TuneRequest(2))
    calls = [name for name, *_ in backend.mock_calls if name != "peak"]
    assert calls == ["submit", "submit", "tune", "submit", "tune", "submit", "tune"]
    assert [one.args[0] for one in backend.submit.mock_calls][1:3] == [UNKNOWN] * 2
    assert "too large" in capsys.readouterr().err
    backend.reset_mock()
    backend.submit.side_effect, backend.tune.side_effect = [limit, None], [limit, {}, {}]
    tune_missing(backend, problems, "host", TuneRequest(2))
    calls = [name for name, *_ in backend.mock_calls if name != "peak"]
    assert calls == ["submit", "tune", "tune", "submit", "tune"], "no second wait for nothing"
    for backend.tune.side_effect in (too_large, errors.NoAnswerError("away")):
        backend.submit.side_effect = limit
        with pytest.raises(type(backend.tune.side_effect)):
            tune_missing(backend, problems, "host", TuneRequest(2))


@pytest.mark.parametrize("error", [MissingError("none"), UnreadableError("damaged")])
def test_a_damaged_result_is_searched_again_as_a_missing_one_is(error) -> None:
    backend, problems = Mock(), [parse_problem(one) for one in (ABSENT, PROBLEM)]
    backend.show.side_effect = [error, {"stale": False}]
    assert missing(backend, problems, "host", "hot") == problems[:1]


def test_frozen_changes_nothing_and_passes_where_all_agrees(place: Place) -> None:
    place.fetch()
    before = place.files(), place.lock.read_text()
    ran = place.frozen("--server", "http://127.0.0.1:1")
    assert (ran.code, ran.err) == (0, ""), "nobody is asked"
    assert (place.files(), place.lock.read_text()) == before
    (entry,) = place.entries().values()
    assert place.fetch("--frozen", "--target", "cpu:host,threads=1").code == 0
    for wanted in (entry.target.replace("threads=1", "threads=2"), "cpu:host,threads=2"):
        ran = place.fetch("--frozen", "--target", wanted)
        assert ran.code == 3 and f"not for {wanted}" in ran.err


CHANGES: dict[str, Callable[[Place], object]] = {
    "edited": lambda place: (place.folder / SCRIPT).write_text("edited"),
    "deleted": lambda place: (place.folder / SCRIPT).unlink(),
    "listed": lambda place: place.list.write_text(f"{PROBLEM}\n{ABSENT}\n{UNKNOWN}\n"),
    "unlisted": lambda place: place.list.write_text(f"{ABSENT}\n"),
    "unlocked": lambda place: place.lock.unlink(),
}


@pytest.mark.full
def test_what_is_missing_is_tuned_and_frozen_fails_where_anything_differs(make_place) -> None:
    place, listed = make_place("served"), f"{PROBLEM}\n{ABSENT}\n"
    place.list.write_text(listed)
    ran = place.fetch("--tune-missing", "--trials", "3")
    assert ran.code == 0 and "1/1 tunes" in ran.err and ABSENT in ran.err, ran.err
    assert set(place.entries()) == {SCRIPT, "matmul_m8_n8_k8_f32.cpu.mlir"}
    script, lock = place.files()[SCRIPT], place.lock.read_text()
    for change, make in CHANGES.items():
        make(place)
        before = place.files(), place.lock.exists()
        ran = place.fetch("--frozen")
        assert ran.code == 3, change
        named = "matmul_m9_n9_k9_f32" if change == "listed" else NAME
        assert named in ran.err and "without --frozen to update" in ran.err, change
        assert (place.files(), place.lock.exists()) == before, change
        reported = json.loads(place.fetch("--frozen", "--json").out)
        assert reported["frozen"] is False and reported["differences"], change
        (place.folder / SCRIPT).write_text(script)
        place.lock.write_text(lock)
        place.list.write_text(listed)
        assert place.fetch("--frozen").code == 0, change


def test_a_fresh_checkout_is_filled_without_a_network(place, monkeypatch, tmp_path) -> None:
    place.fetch("--kernels")
    before, lock = place.files(), place.lock.read_text()
    shutil.rmtree(place.folder)
    ran = place.frozen("--kernels", "--server", "http://127.0.0.1:1")
    assert (ran.code, ran.err) == (0, "")
    assert (place.files(), place.lock.read_text()) == (before, lock)
    # A fresh machine gets the locked texts from the store.
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "another cache"))
    shutil.rmtree(place.folder)
    assert place.fetch("--frozen", "--kernels").code == 0
    assert place.files() == before


def test_a_fill_that_was_broken_off_is_gone_on_with(place: Place) -> None:
    place.fetch("--kernels")
    before = place.files()
    mark, draft = place.folder / ".tilewise-filling", place.path / ".tilewise-tilewise.lock.x.tmp"
    mark.touch(), draft.touch()
    lacking = place.fetch("--kernels", "--target", "cpu:znver4,threads=1,features=-avx512bf16")
    assert lacking.code == 3 and mark.exists() and not draft.exists()
    assert place.fetch("--kernels").code == 0, "it ends the fill"
    (place.folder / SCRIPT).unlink()
    assert place.fetch("--frozen", "--kernels").code == 3, "one file alone is a difference"
    mark.touch(), (place.folder / ".tilewise-x.tmp").touch()
    (place.folder / ".gitignore").write_text("*")
    assert place.fetch("--frozen", "--kernels").code == 0
    assert place.files() == {**before, ".gitignore": "*"}


def test_another_text_than_the_locked_one_is_never_taken(place, monkeypatch, tmp_path) -> None:
    place.fetch()
    text, (entry,) = place.lock.read_text(), place.entries().values()
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "another cache"))
    (place.folder / SCRIPT).unlink()
    ran = place.frozen("--db", f"sqlite:///{tmp_path / 'none.db'}")
    assert ran.code == 3 and SCRIPT in ran.err and "cache folder has no such text" in ran.err
    place.lock.write_text(text.replace(entry.sha256, "f" * 64))
    ran = place.fetch("--frozen")
    assert ran.code == 3 and "the store has another one or none" in ran.err
    assert place.files() == {}


def test_what_newer_schedules_would_gain(place: Place) -> None:
    place.list.write_text(f"{PROBLEM}\n{ABSENT}\n")
    place.fetch()
    files = place.files()
    checked = place.fetch("--check")
    assert "0 of 2 files would be faster" in checked.out
    assert checked.code == 3 and ABSENT in checked.err and "--tune-missing" in checked.err
    (entry,) = place.entries().values()
    slower = replace(entry, gflops=1.0, interval=(0.9, 1.1), sha256="0" * 64)
    slow = Lock.of([slower], place.folder.name).render()
    place.lock.write_text(slow)
    assert "1 of 2 files would be faster" in place.fetch("--check").out
    rows = json.loads(place.fetch("--check", "--json").out)["files"]
    found = {row["problem"]: row["verdict"] for row in rows}
    assert found == {PROBLEM: "faster", ABSENT: "not stored"}
    assert place.files() == files and place.lock.read_text() == slow
    place.list.write_text(f"{PROBLEM}\n")
    assert place.fetch("--check").code == 0


@pytest.mark.full
@pytest.mark.parametrize(("options", "said"), [
    (("--frozen", "--check"), "--frozen and --check contradict"),
    (("--frozen", "--tune-missing"), "contradict"),
    (("--target", "gpu:x"), "target"),
    (("--trials", "0", "--tune-missing"), "trials"),
    (("--lock", "/nowhere/at/all/x.lock"), "there is no folder"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(place: Place, options: tuple[str, ...], said: str) -> None:
    place.list.write_text(f"{ABSENT}\n")
    ran = place.fetch(*options)
    assert ran.code == 2 and said in ran.err and len(ran.err.splitlines()) <= 2


def test_a_lock_file_belongs_to_one_folder(place: Place, monkeypatch) -> None:
    place.fetch()
    before = place.lock.read_text()
    place.folder, own = place.path / "other", place.path / "other.lock"
    for options in ((), ("--frozen",), ("--check",)):
        ran = place.fetch(*options)
        assert ran.code == 2 and "is the lock file of the folder 'scripts'" in ran.err
    assert place.lock.read_text() == before and not list(place.folder.glob("*"))
    assert place.fetch("--lock", str(own)).code == 0
    assert own.exists() and place.lock.read_text() == before
    (place.folder / "inner").mkdir()
    monkeypatch.chdir(place.folder / "inner")
    ran = place.cli("fetch", str(place.list), "-o", "..", *place.where)
    assert ran.code == 2 and f"{place.lock} is the lock file of" in ran.err, "it is next to other"


def test_an_unchanged_folder_costs_one_request(cli, served_as_stored, tmp_path, monkeypatch):
    place = Place(cli, tmp_path, ("--server", served_as_stored))
    place.fetch("--kernels")
    asked, send = list[str](), httpx.Client.request

    def noted(self: httpx.Client, method: str, url: str, **options: Any) -> httpx.Response:
        asked.append(f"{method} {url}")
        return send(self, method, url, **options)

    monkeypatch.setattr(httpx.Client, "request", noted)
    assert place.fetch("--kernels").code == 0
    assert asked == ["POST /v1/schedules/lookup"]


@pytest.mark.full
@pytest.mark.parametrize("written", range(3))
def test_a_fetch_that_is_killed_leaves_nothing_half_done(
    served_as_stored: str, tuned: str, tmp_path: Path, cli: Cli, written: int
) -> None:
    """A short form of `benchmarks.serving.fetching`, which kills a hundred times."""
    place = Place(cli, tmp_path, ("--server", served_as_stored))
    place.fetch("--kernels")
    whole, lock = place.files(), place.lock.read_text()
    for path in [*place.folder.iterdir(), place.lock]:
        path.unlink()
    fetching = subprocess.Popen(place.command("--kernels"), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(list(place.folder.glob("*"))) < written and fetching.poll() is None:
        assert time.monotonic() < deadline
    os.kill(fetching.pid, signal.SIGKILL)
    fetching.wait()
    for name, text in place.files().items() if place.folder.exists() else ():
        assert name.startswith(".tilewise-") or whole[name] == text
    assert not place.lock.exists() or place.lock.read_text() == lock
    assert place.fetch("--kernels").code == 0
    assert (place.files(), place.lock.read_text()) == (whole, lock)


def test_two_fetches_at_once_do_no_harm(served_as_stored: str, tmp_path: Path, cli: Cli) -> None:
    place = Place(cli, tmp_path, ("--server", served_as_stored))
    both = [subprocess.Popen(place.command("--kernels"), stdout=subprocess.PIPE) for _ in "ab"]
    said = sorted((one.communicate()[0] or b"").decode() for one in both)
    assert [one.returncode for one in both] == [0, 0]
    assert [text.partition(",")[0] for text in said] == ["0 written", "2 written"]
    assert place.fetch("--frozen", "--kernels").code == 0


def test_a_noisy_speed_is_flagged_until_it_was_measured_again(place: Place, tuned: str) -> None:
    def measure(low: float) -> None:
        sessions = make_sessions(make_engine(tuned))
        with writing(sessions) as session:
            for row in session.query(models.Proof):
                row.low = low
                row.digest = proof_digest(ResultKey.of(session.query(models.Schedule).one()), row)

    measure(10.0)
    place.fetch()
    assert [entry.quality for entry in place.entries().values()] == ["noisy"]
    assert 'quality = "noisy"' in place.lock.read_text()
    files = place.files()
    measure(39.5)
    ran = place.fetch()
    assert ran.out == "0 written, 1 unchanged, 0 removed, 0 missing\n"
    (entry,) = place.entries().values()
    assert (entry.quality, entry.interval, place.files()) == (None, (39.5, 41.0), files)


def of_another(target: str, place: Place) -> str:
    own = next(iter(place.entries().values())).target
    place.lock.write_text(place.lock.read_text().replace(own, target))
    return own


def test_a_lock_file_that_names_other_features_says_so_and_follows(place: Place) -> None:
    assert place.fetch("--kernels").code == 0
    wanted = "cpu:znver4,threads=1,features=-avx512bf16"
    ran, own = place.fetch("--kernels", "--target", wanted), of_another("cpu:z80,threads=1", place)
    said = f"no schedule is stored; {SCRIPT} is locked for {own}, not for {wanted}"
    assert ran.code == 3 and said in ran.err
    assert place.fetch("--kernels", "--frozen").code == 0, "the files are the locked ones"
    for options in (("--frozen", "--target", own), ("--check",), ()):
        ran = place.fetch("--kernels", *options)
        said = f"tilewise: {SCRIPT}: is locked for cpu:z80,threads=1, not for {own} (features diff"
        assert said in ran.err and ran.code == (3 if "--frozen" in options else 0)
    assert {entry.target for entry in place.entries().values()} == {own}
    assert place.fetch("--kernels", "--frozen", "--target", own).code == 0
    assert place.fetch("--kernels").err == ""


def test_a_locked_text_is_found_under_the_target_that_it_has_now(place, monkeypatch) -> None:
    """Stores of before 0.2 named no features; the text is known by its hash."""
    place.fetch()
    here = detect()
    of_another(replace(here, features=here.features | {"amx-fp16"}).canonical, place)
    whole = place.files()
    (place.folder / SCRIPT).unlink()
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(place.path / "another cache"))
    ran = place.fetch("--frozen")
    assert (ran.code, place.files()) == (0, whole), ran.err
