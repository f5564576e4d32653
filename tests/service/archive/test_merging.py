import shutil
from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import make_url, select

from tests.cases import some
from tests.service import fakes
from tests.service.archive import stores
from tests.service.archive.forging import edited
from tests.service.conftest import PROBLEM
from tilewise.search.records import Measurement, Winner
from tilewise.service.archive import restore as module
from tilewise.service.archive.restore import restore
from tilewise.service.db import models, reading
from tilewise.service.errors import ArchiveError
from tilewise.service.results import integrity, scripts, stored

KINDS = some(("sqlite", "postgresql"), of=2)
SLOW, FAST = stores.Search(gflops=(10.0, 11.0)), stores.Search(gflops=(5.0, 0.0, 20.0))


def facts(sessions):
    return stores.trials_of(sessions), stores.best_of(sessions)


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_stores_either_takes_in_the_other_with_the_same_end(new_store, tmp_path, kind):
    one, other = new_store(kind), new_store(kind)
    stores.searched(one, SLOW), stores.searched(one, stores.Search(stores.COLD, (3.0,)))
    stores.searched(other, FAST)
    stores.exported(one, tmp_path / "one.zip"), stores.exported(other, tmp_path / "other.zip")
    expected = sorted(stores.trials_of(one) + stores.trials_of(other))
    from_one = restore(other, tmp_path / "one.zip")
    from_other = restore(one, tmp_path / "other.zip")
    assert facts(one) == facts(other)
    assert stores.trials_of(one) == expected and len(expected) == 6
    assert stores.best_of(one)[PROBLEM][0] == 20.0, "the faster one is served"
    assert stores.best_of(one)[PROBLEM][2] == 3, "the larger budget answers"
    assert (from_one.replaced, from_other.replaced) == (0, 1)
    with reading(one) as session:
        for row in session.scalars(select(models.Schedule)):
            assert integrity.is_whole(row) and not integrity.tampered_proofs(session, row)
            trials = session.scalars(select(models.Trial).where(models.Trial.job_id == row.job_id))
            assert row.hash in {trial.hash for trial in trials}, "it is its job's"


def test_of_all_proofs_the_fastest_is_served(new_store, tmp_path):
    """The script of the slower schedule can be the faster script."""

    def prove(speed):
        def proving(problem, schedule, *, seed, seconds=60.0, threads=1):
            made = fakes.prove(problem, schedule, seed=seed)
            return replace(made, gflops=speed, script=f"{made.script}// {speed}\n")

        return {"prover": proving}

    one, other = new_store(), new_store()
    stores.searched(one, replace(SLOW, parts=prove(40.0)))
    stores.searched(other, replace(FAST, parts=prove(30.0)))
    for source, target in ((one, other), (other, one)):
        stores.moved(source, target, tmp_path / "a.zip")
    for store in (one, other):
        with reading(store) as session:
            row = session.scalars(select(models.Schedule)).one()
            served = scripts.proven_script(session, row)
            assert row.gflops == 20.0 and "// 40.0" in served.text
            texts = [proof.script.text for proof in stored.all_proofs(session, row.id)]
            assert len(texts) == len(set(texts)), "none twice"


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_that_has_gone_on_meanwhile_is_the_same_search(new_store, tmp_path, kind):
    of, into = new_store(kind), new_store(kind)
    job = stores.cut_off(of, FAST, 2)
    stores.moved(of, into, tmp_path / "early.zip")
    assert len(stores.trials_of(into)) == 2 and not stores.best_of(into)
    stores.go_on(of, job, FAST)
    merged = stores.moved(of, into, tmp_path / "a.zip")
    assert (merged.known["trials"], merged.added["trials"], merged.known["jobs"]) == (2, 1, 1)
    (row,) = stores.rows_of(into)["jobs"]
    assert (row["state"], row["complete"], row["error"]) == ("done", True, None)
    assert facts(into) == facts(of)
    stores.moved(into, of, tmp_path / "b.zip")
    assert len(stores.rows_of(of)["jobs"]) == 1
    for store in (of, into):
        stores.restored_in_vain(store, tmp_path / "early.zip")


def test_a_search_that_went_on_in_two_copies_keeps_the_trials_of_both(new_store, tmp_path):
    """A database was copied as a file, and both copies ran what was under way."""
    one = new_store()
    job = stores.cut_off(one, FAST, 1)
    copied = tmp_path / "copy.db"
    stores.execute(one, "PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(make_url(one.kw["bind"].url).database, copied)
    with stores.opened_store(f"sqlite:///{copied}") as other:
        stores.go_on(one, job, FAST)
        stores.go_on(other, job, FAST)
        both = set(stores.trials_of(one)) | set(stores.trials_of(other))
        merged = stores.moved(other, one, tmp_path / "a.zip")
    assert (merged.known["trials"], merged.added["trials"]) == (1, 2)
    assert set(stores.trials_of(one)) == both and len(stores.trials_of(one)) == len(both) == 5
    stores.restored_in_vain(one, tmp_path / "a.zip")


def test_a_search_that_runs_here_is_left_alone(new_store, tmp_path):
    """A store that was put back from an older copy has trials to come in its own archive."""
    one = new_store()
    job = stores.searched(one, FAST)
    stores.exported(one, tmp_path / "late.zip")
    stores.execute(one, "UPDATE jobs SET state = 'running', owner = 'host:1:1', finished_at = NULL")
    stores.execute(one, "DELETE FROM trials WHERE number = 1")
    assert stores.restored_in_vain(one, tmp_path / "late.zip").postponed == 1
    stores.go_on(one, job, FAST)
    assert restore(one, tmp_path / "late.zip").added["trials"] == 1
    assert len(stores.trials_of(one)) == 4


@pytest.mark.parametrize(
    "edit",
    ["schedules SET gflops = 999", "schedules SET steps = '[]'", "scripts SET text = 'forged'",
     "schedules SET gflops = 'x'"],
)  # fmt: skip
def test_what_is_not_what_was_stored_gives_way(new_store, tmp_path, edit):
    one, other = new_store(), new_store()
    stores.searched(one, SLOW)
    stores.moved(one, other, tmp_path / "a.zip")
    stores.execute(other, f"UPDATE {edit}")
    restore(other, tmp_path / "a.zip")
    assert stores.best_of(other) == stores.best_of(one)
    with reading(other) as session:
        row = session.scalars(select(models.Schedule)).one()
        assert integrity.is_whole(row) and scripts.proven_script(session, row) is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("edit", ["", "UPDATE tuned_ranges SET loss_mean = 9"])
def test_of_two_ranges_the_newer_stays_unless_it_was_changed(new_store, tmp_path, kind, edit):
    """Whichever store takes in the other; another import changes nothing."""
    one, other = new_store(kind), new_store(kind)
    for store, best_us in ((one, 0.25), (other, 0.5)):
        stores.searched(store, SLOW)
        stores.add_range(store, best_us)
    stores.exported(one, tmp_path / "older.zip"), stores.exported(other, tmp_path / "newer.zip")
    if edit:
        stores.execute(other, edit)
    restore(other, tmp_path / "older.zip"), restore(one, tmp_path / "newer.zip")
    for store, best_us in ((one, 0.5), (other, 0.25 if edit else 0.5)):
        with reading(store) as session:
            row = session.scalars(select(models.TunedRange)).one()
            assert integrity.is_whole(row)
            assert row.result["samples"][0]["best_us"] == best_us
    stores.restored_in_vain(one, tmp_path / "newer.zip")


def test_the_result_that_is_not_taken_goes_into_the_history(new_store, tmp_path):
    """Whichever of two stores takes in the other, it has both results, and says which is which."""
    noisy = Measurement(90.0, (40.0, 170.0), 11.0)

    def tune(*given, **hooks):
        found = fakes.tune(*given, **hooks)
        return replace(found, best=Winner(fakes.schedule(), noisy, 100.0))

    one, other = new_store(), new_store()
    (
        stores.searched(one, SLOW),
        stores.searched(other, stores.Search(gflops=(5.0,), parts={"tuner": tune})),
    )
    stores.exported(one, tmp_path / "one.zip"), stores.exported(other, tmp_path / "other.zip")
    for into, file in ((one, "other.zip"), (other, "one.zip")):
        merged = restore(into, tmp_path / file)
        rows = stores.rows_of(into)
        (best,), (past,) = rows["schedules"], rows["past_schedules"]
        assert (best["gflops"], past["gflops"]) == (11.0, 90.0), "a good one replaces a noisy one"
        assert (past["was_best"], merged.replaced) == (into is other, int(into is other))
        restore(into, tmp_path / file)
        assert stores.rows_of(into)["past_schedules"] == [past], "once is enough"
        third = new_store()
        stores.moved(into, third, tmp_path / "both.zip")
        (copy,) = stores.rows_of(third)["past_schedules"]
        same = ("gflops", "steps", "was_best", "created_at", "ended_at")
        assert [copy[name] for name in same] == [past[name] for name in same]


class EndedError(Exception):
    """The process of an import ends, as by kill -9."""


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 3)
    monkeypatch.setattr(module, "PAUSE_S", 0.0)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_imports_complete(filled, new_store, tmp_path, monkeypatch, small_pieces, kind):
    """Each import ends a piece later than the one before; nothing of that is left."""
    stores.cut_off(filled, stores.Search("matmul:m=11,n=9,k=9,dtype=f32"), 2)
    stores.exported(filled, tmp_path / "a.zip")
    at_once, into, pieces = new_store(), new_store(kind), module._pieces
    restore(at_once, tmp_path / "a.zip")

    def interrupted(archive):
        for number, piece in enumerate(pieces(archive)):
            if number == end:
                raise EndedError
            yield piece

    monkeypatch.setattr(module, "_pieces", interrupted)
    end, is_complete = 0, False
    while not is_complete:
        before = len(stores.trials_of(into))
        with suppress(EndedError):
            restore(into, tmp_path / "a.zip")
            is_complete = True
        assert len(stores.trials_of(into)) >= before, "what was taken in stays"
        end += 1
    assert end > 15
    assert stores.trials_of(into) == stores.trials_of(filled)
    whole = stores.exported(at_once, tmp_path / "b.zip").members
    assert stores.exported(into, tmp_path / "c.zip").members == whole


def test_a_file_that_changes_is_reported(filled, new_store, tmp_path, monkeypatch, small_pieces):
    into, file = new_store(), tmp_path / "a.zip"
    stores.exported(filled, file)
    edited(file, "schedules.jsonl", lambda lines: lines[0]["proofs"][0].update(ok=False))
    monkeypatch.setattr(module.Checks, "look_at", lambda *_: None)  # it was another file then
    with pytest.raises(ArchiveError) as raised:
        restore(into, file)
    assert "import it again" in str(raised.value) and "nothing was changed" not in str(raised.value)
    assert len(stores.trials_of(into)) == 9 and not stores.rows_of(into)["schedules"]
