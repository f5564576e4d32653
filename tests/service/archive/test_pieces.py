from contextlib import suppress
from itertools import count

import pytest

from tests.cases import some
from tests.service.archive.forging import edited
from tests.service.archive.stores import Search, cut_off, exported, rows_of, trials_of
from tilewise.service.archive import restore as module
from tilewise.service.archive.restore import restore
from tilewise.service.errors import ArchiveError, OutageError

KINDS = some(("sqlite", "postgresql"), of=2)


class EndedError(Exception):
    """The process of an import ends, as by kill -9."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(module, "PIECE", 3)
    monkeypatch.setattr(module, "PAUSE_S", 0.0)


@pytest.fixture
def between(monkeypatch):
    """Has something done before each piece, which is told how many came before."""
    pieces = module._pieces

    def make(do):
        def interrupted(archive):
            for number, piece in enumerate(pieces(archive)):
                do(number)
                yield piece

        monkeypatch.setattr(module, "_pieces", interrupted)

    return make


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_an_import_that_ends_early_is_completed_by_the_next(
    filled, new_store, tmp_path, between, kind
):
    """Wherever it ends, again and again; nothing is left that tells."""
    cut_off(filled, Search("matmul:m=11,n=9,k=9,dtype=f32"), 2)
    exported(filled, tmp_path / "a.zip")
    at_once, into = new_store(), new_store(kind)
    restore(at_once, tmp_path / "a.zip")
    for end in count():
        begun = []

        def end_there(number, end=end, begun=begun):
            begun.append(number)
            if number == end:
                raise EndedError

        between(end_there)
        before = len(trials_of(into))
        with suppress(EndedError):
            restore(into, tmp_path / "a.zip")
        assert len(trials_of(into)) >= before, "what was taken in stays"
        if len(begun) == end:
            break
    assert end > 15
    assert trials_of(into) == trials_of(filled)
    whole = exported(at_once, tmp_path / "b.zip").members
    assert exported(into, tmp_path / "c.zip").members == whole


def test_a_dry_run_says_where_its_copy_cannot_be(filled, new_store, tmp_path, monkeypatch):
    exported(filled, tmp_path / "a.zip")

    def full(**_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.tempfile, "TemporaryDirectory", full)
    with pytest.raises(OutageError, match=f"cannot be had in {tmp_path}: .* No space left"):
        restore(new_store(), tmp_path / "a.zip", dry_run=True)


def test_a_file_that_changes_after_it_was_checked_says_what_is_left(
    filled, new_store, tmp_path, monkeypatch
):
    into = new_store()
    exported(filled, tmp_path / "a.zip")
    edited(
        tmp_path / "a.zip", "schedules.jsonl", lambda lines: lines[0]["proofs"][0].update(ok=False)
    )
    monkeypatch.setattr(module.Checks, "look_at", lambda *_: None)  # it was another file then
    with pytest.raises(ArchiveError) as raised:
        restore(into, tmp_path / "a.zip")
    assert "import it again" in str(raised.value) and "nothing was changed" not in str(raised.value)
    assert len(trials_of(into)) == 9 and not rows_of(into)["schedules"]
