import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli
from tests.tilewise.fetch.test_fetch import NAME, SCRIPT, Place
from tilewise.errors import BadInputError
from tilewise.fetch import folder as folders
from tilewise.fetch.folder import KEPT, keep, kept, sha256
from tilewise.fetch.lock import Lock

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def place(cli: Cli, tuned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    made = Place(cli, tmp_path, ("--db", tuned))
    assert made.fetch().code == 0
    return made


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sha256", "/dev/zero"), ("sha256", "../../etc/passwd"), ("sha256", ""),
        ("sha256", "A" * 64), ("sha256", "0" * 63), ("sha256", "0" * 64 + "\\n"),
        ("key", "/dev/zero"), ("kind", "/dev/zero"), ("path", "../x"), ("path", "/dev/zero"),
        ("path", ".."), ("path", "a\\u0000b"), ("path", "a\\nb"), ("path", "x" * 300),
        ("path", ".tilewise-filling"), ("problem", "matmul:m=1,n=1,k=1,dtype=f32"),
        ("target", "cpu:\\u001b[31mx,threads=1"), ("toolchain", "\\u001b]0;x\\u0007"),
    ],
)  # fmt: skip
def test_a_lock_that_names_no_digest_or_no_file_is_refused(
    place: Place, name: str, value: str
) -> None:
    text = place.lock.read_text()
    wrong = re.sub(rf'(?m)^{name} = ".*"$', lambda _: f'{name} = "{value}"', text)
    place.lock.write_text(wrong)
    (place.folder / SCRIPT).unlink()
    for options in ((), ("--frozen",), ("--check",)):
        ran = place.fetch(*options)
        assert ran.code == 2 and len(ran.err.splitlines()) == 1, ran.err
        assert "is not a lock file" in ran.err and "Traceback" not in ran.err
    assert place.lock.read_text() == wrong and not list(place.folder.iterdir())


def test_a_lock_of_another_problem_is_found_and_mended(place: Place) -> None:
    right = place.lock.read_text()
    (locked,) = Lock.parse(right, "x.lock").entries.values()
    other = "matmul:m=1,n=1,k=1,dtype=f32"
    wrong = Lock.of([replace(locked, problem=other, key=sha256(other))], place.folder.name)
    place.lock.write_text(wrong.render())
    held = place.fetch("--frozen")
    assert held.code == 3 and f"is locked as {other}" in held.err
    assert place.fetch().code == 0 and place.lock.read_text() == right


@pytest.mark.parametrize("value", ["nan", "inf", "-1.0"])
def test_a_lock_with_an_impossible_speed_is_refused(place: Place, value: str) -> None:
    text = re.sub(r"(?m)^gflops = .*$", f"gflops = {value}", place.lock.read_text())
    with pytest.raises(BadInputError, match="are no speed"):
        Lock.parse(text, "x.lock")


def replaced(path: Path, kind: str) -> None:
    """Something that is no regular file in place of one."""
    path.unlink(missing_ok=True)
    match kind:
        case "device":
            path.symlink_to("/dev/zero")
        case "link":
            path.symlink_to(__file__)
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()


@pytest.mark.parametrize("kind", ["device", "link", "fifo", "folder"])
def test_a_folder_with_other_than_regular_files_is_refused(place: Place, kind: str) -> None:
    replaced(place.folder / SCRIPT, kind)
    before = place.lock.read_text()
    for options, code in (((), 2), (("--frozen",), 3)):
        ran = place.fetch(*options)
        assert ran.code == code and SCRIPT in ran.err and "Traceback" not in ran.err, ran.err
        assert "regular file" in ran.err or "directory" in ran.err
    assert place.lock.read_text() == before
    (place.folder / SCRIPT).rmdir() if kind == "folder" else (place.folder / SCRIPT).unlink()
    assert place.fetch().code == 0, "the lock of the folder is free"


@pytest.mark.parametrize("kind", ["device", "fifo", "folder"])
def test_a_lock_file_that_is_none_is_refused(place: Place, kind: str) -> None:
    replaced(place.lock, kind)
    for options in ((), ("--frozen",)):
        ran = place.fetch(*options)
        assert ran.code == 2 and len(ran.err.splitlines()) == 1, ran.err


@pytest.mark.parametrize("kind", ["device", "link", "fifo", "folder"])
def test_a_cache_with_other_than_regular_files_is_not_used(place: Place, kind: str) -> None:
    digest = place.entries()[SCRIPT].sha256
    cache = place.path / "cache" / folders.KEPT / digest
    assert cache.exists()
    replaced(cache, kind)
    (place.folder / SCRIPT).unlink()
    ran = place.fetch("--frozen")
    assert ran.code == 0, ran.err
    assert list(place.files()) == [SCRIPT] and NAME in SCRIPT


def test_a_mark_that_is_a_link_leaves_its_target_alone(place: Place) -> None:
    outside = place.path / "outside"
    (place.folder / folders.FILLING).symlink_to(outside)
    (place.folder / SCRIPT).unlink()
    assert place.fetch("--frozen").code == 0
    assert not outside.exists() and list(place.files()) == [SCRIPT]


def test_a_damaged_text_of_the_cache_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    keep("a script")
    digest = sha256("a script")
    assert kept(digest) == "a script"
    (tmp_path / KEPT / digest).write_text("another script")
    assert kept(digest) is None
