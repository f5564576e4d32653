"""Lists, lock files, hostile folders, and ranges in a list."""

import json
import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from tests.service.archive.stores import RANGE, add_range, opened_store
from tests.tilewise.conftest import PROBLEM, Cli
from tests.tilewise.fetch.test_fetch import NAME, SCRIPT, Made, Place, make_place
from tilewise.cli.files import read_text
from tilewise.errors import BadInputError
from tilewise.fetch import folder as folders
from tilewise.fetch.folder import KEPT, keep, kept, sha256
from tilewise.fetch.lock import Lock, LockEntry, file_name
from tilewise.fetch.problems import read_list
from tilewise.kernels.problem import parse_any, parse_problem
from tilewise.service.db import models, writing

__all__ = ["make_place"]  # a fixture

ONE = "matmul:m=64,n=48,k=32,dtype=f32"
TWO = "conv2d:n=1,h=8,w=8,ci=4,co=4,kh=3,kw=3,dtype=f32,bias,epilogue=relu"


def test_a_list_has_a_problem_a_line_and_every_bad_line_is_named():
    text = f"# models\n\n{ONE}  # the first\n  {TWO}\nmatmul: k=32, n=48, m=64, dtype=f32\n"
    assert read_list("x.txt", text, parse_any) == [parse_problem(ONE), parse_problem(TWO)]
    with pytest.raises(BadInputError) as caught:
        read_list("x.txt", f"{ONE}\ngemm:m=1\n{TWO}\nmatmul:m=0,n=1,k=1,dtype=f32\n", parse_any)
    said = str(caught.value)
    assert "x.txt: line 2:" in said and "line 4:" in said and "line 3" not in said
    for text in ("", "# nothing\n\n"):
        with pytest.raises(BadInputError, match="contains no problem"):
            read_list("x.txt", text, parse_any)


def test_a_suite_is_a_list(tmp_path: Path):
    path = tmp_path / "suite.json"
    as_object = {"op": "matmul", "m": 64, "n": 48, "k": 32, "dtype": "f32", "count": 3}
    path.write_text(json.dumps({"name": "s", "problems": [as_object, TWO, ONE]}))
    found = read_list(str(path), path.read_text(), parse_any)
    assert found == [parse_problem(ONE), parse_problem(TWO)]


@pytest.mark.parametrize("text", [f"{ONE}\r\n", json.dumps({"problems": [ONE]})])
def test_a_list_of_an_editor_that_marks_utf_8_is_read(text: str, tmp_path: Path):
    path = str(tmp_path / ("list.json" if "{" in text else "list.txt"))
    Path(path).write_bytes(text.encode("utf-8-sig"))
    assert read_list(path, read_text(path), parse_any) == [parse_problem(ONE)]


NUMBERS = st.integers(1, 2**20)

PROBLEMS = st.builds(
    "matmul:batch={},m={},n={},k={},dtype={}{}{}".format,
    *([NUMBERS] * 4),
    st.sampled_from(["f32", "i8", "bf16"]),
    st.sampled_from(["", ",transpose_a", ",transpose_b", ",transpose_a,transpose_b"]),
    st.sampled_from(["", ",bias", ",epilogue=relu", ",bias,epilogue=relu"]),
)


@cases(100, short=25)
@given(st.lists(PROBLEMS, min_size=2, max_size=30))
def test_names_are_safe_and_each_for_one_problem(texts):
    problems = {parse_problem(text) for text in texts}
    names = {file_name(problem, "cpu") for problem in problems}
    assert len(names) == len(problems)
    assert all(re.fullmatch(r"[0-9A-Za-z][\w.-]{,119}", name, re.ASCII) for name in names)


def entry(path="b.cpu.mlir", **changes):
    values = {
        "path": path, "problem": ONE, "key": sha256(ONE), "kind": "cpu",
        "target": "cpu:x,threads=1", "toolchain": 'a "quoted" one, 2.0', "schedule": "s",
        "sha256": "0" * 64, "gflops": 12.5, "interval": (12.0, 13.0),
    }  # fmt: skip
    return LockEntry(**{**values, **changes})


ONCE = Lock.of([entry("f")]).render()
TWICE = ONCE + ONCE[ONCE.index("[[file]]") :]
WRONG = [
    *(f'sha256 = "{value}"' for value in ("/dev/zero", "../../etc/passwd", "", "A" * 64, "0" * 63,
                                          "0" * 64 + "\\n")),
    *(f'path = "{value}"' for value in ("../x", "/dev/zero", "..", "a\\u0000b", "a\\nb", "x" * 300,
                                        ".tilewise-filling")),
    'key = "/dev/zero"', 'kind = "/dev/zero"', 'problem = "matmul:m=1,n=1,k=1,dtype=f32"',
    'target = "cpu:\\u001b[31mx,threads=1"', 'toolchain = "\\u001b]0;x\\u0007"',
]  # fmt: skip
"""Lines that no lock file has: no digest, no name of a file in the folder, text for terminals."""


def with_line(line, text):
    """Return the text of a lock file with a line in place of that of the same key."""
    return re.sub(rf'(?m)^{line.split()[0]} = ".*"$', lambda _: line, text)


def test_a_lock_file_comes_back_as_it_was():
    lock = Lock.of([entry(), entry("a.py", etag="e", kind="kernel"), entry("c", match="toolchain")])
    found = Lock.parse(lock.render(), "x")
    assert found == lock and found.render() == lock.render()
    assert list(lock.entries) == ["a.py", "b.cpu.mlir", "c"], "sorted, whatever the list's order"


@cases(100, short=25)
@given(st.text(max_size=40).filter(str.isprintable), st.floats(0.01, 1e6))
def test_any_text_comes_back(text, speed):
    lock = Lock.of([entry(toolchain=text, gflops=speed)])
    assert Lock.parse(lock.render(), "x") == lock


@pytest.mark.parametrize(("text", "said"), [
    ("{", "is not a lock file"),
    ("version = 2\n", "version=2 is not one that this tilewise reads, 1"), ("", "version=None"),
    ('version = "1"\n', "version='1'"), ("version = true\n", "version=True"),
    ("version = 1\n<<<<<<< ours\n", "it holds a merge's marks"),
    ("version = 1\n[[file]]\npath = 'x'\n", "Entry has no key, kind"),
    ("version = 1\nfile = 3\n", "is not a lock file"),
    ("version = 1\nfile = [3]\n", "is not a lock file"),
    (f"version = {'9' * 5000}\n", "is not a lock file"),
    (f"version = 1\nx = {'[' * 100_000}\n", "is not a lock file"),
    (TWICE, "is not a lock file: f has two blocks"),
    *((with_line(line, ONCE), "is not a lock file") for line in WRONG),
    *((ONCE.replace("12.5", one), "are no speed") for one in ("nan", "inf", "-1.0")),
], ids=lambda text: ascii(text)[-60:])  # fmt: skip
def test_what_is_no_lock_file(text, said):
    with pytest.raises(BadInputError) as caught:
        Lock.parse(text, "tilewise.lock")
    assert said in str(caught.value) and "tilewise.lock" in str(caught.value)


@pytest.fixture
def place(cli: Cli, tuned: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    made = Place(cli, tmp_path, ("--db", tuned))
    assert made.fetch().code == 0
    return made


def test_a_lock_that_names_no_digest_is_refused_and_left_alone(place: Place) -> None:
    wrong = with_line(WRONG[0], place.lock.read_text())
    place.lock.write_text(wrong)
    (place.folder / SCRIPT).unlink()
    for options in ((), ("--frozen",), ("--check",)):
        assert "is not a lock file" in place.fetch(*options).error()
    assert place.lock.read_text() == wrong and not list(place.folder.iterdir())


def test_a_lock_of_another_problem_is_found_and_mended(place: Place, monkeypatch) -> None:
    right = place.lock.read_text()
    (locked,) = Lock.parse(right, "x.lock").entries.values()
    other = "matmul:m=1,n=1,k=1,dtype=f32"
    wrong = Lock.of([replace(locked, problem=other, key=sha256(other))], place.folder.name)
    place.lock.write_text(wrong.render())
    held = place.fetch("--frozen")
    assert held.code == 3 and f"is locked as {other}" in held.err
    drafts = Mock(wraps=tempfile.mkstemp)
    monkeypatch.setattr(tempfile, "mkstemp", drafts)
    assert place.fetch().code == 0 and place.lock.read_text() == right
    wanted = {"dir": place.lock.parent, "prefix": ".tilewise-tilewise.lock.", "suffix": ".tmp"}
    assert drafts.call_args.kwargs == wanted, "the folder may be a mount"


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
    if kind != "link":
        replaced(place.lock, kind)
        for options in ((), ("--frozen",)):
            place.fetch(*options).error()


@pytest.mark.parametrize("kind", ["device", "link", "fifo", "folder"])
def test_a_cache_with_other_than_regular_files_is_not_used(place: Place, kind: str) -> None:
    cache = place.path / "cache" / folders.KEPT / place.entries()[SCRIPT].sha256
    assert cache.exists()
    replaced(cache, kind)
    (place.folder / SCRIPT).unlink()
    ran = place.fetch("--frozen")
    assert ran.code == 0, ran.err
    assert list(place.files()) == [SCRIPT] and NAME in SCRIPT


def test_a_mark_that_is_a_link_and_a_damaged_text_of_the_cache_do_no_harm(place: Place) -> None:
    outside, digest = place.path / "outside", sha256("a script")
    (place.folder / folders.FILLING).symlink_to(outside)
    (place.folder / SCRIPT).unlink()
    assert place.fetch("--frozen").code == 0
    assert not outside.exists() and list(place.files()) == [SCRIPT]
    keep("a script")
    assert kept(digest) == "a script"
    cache = place.path / "cache" / KEPT
    (cache / digest).write_text("a script")  # without its hash
    assert kept(digest) is None
    keep("another script")
    (cache / sha256("another script")).replace(cache / digest)
    assert kept(digest) is None


STEM = "matmul_m1to9_n48_k32_f32"
ABSENT = RANGE.replace("1..9", "1..8")


@pytest.fixture
def ranges(ranged: str, make_place: Made) -> Place:
    made = make_place("served_as_stored")
    made.list.write_text(f"{PROBLEM}\n{RANGE}\n")
    return made


def test_ranges_are_fetched_locked_and_held(ranges, cli, ranged, tmp_path) -> None:
    assert ranges.fetch("--kernels").out == "3 written, 0 unchanged, 0 removed, 0 missing\n"
    files = ranges.files()
    variants = json.loads(files[f"{STEM}.json"])["variants"]
    assert variants == cli("show", RANGE, "--json", *ranges.where).json["variants"]
    kinds = {path: one.kind for path, one in ranges.entries().items() if one.problem == RANGE}
    assert kinds == {f"{STEM}.json": "range"}
    locked = ranges.lock.read_text()
    # The same variants measured again are the same files.
    with opened_store(ranged) as sessions:
        add_range(sessions, best_us=0.25)
    assert ranges.fetch("--kernels").out == "0 written, 3 unchanged, 0 removed, 0 missing\n"
    assert ranges.lock.read_text() == locked and ranges.files() == files
    assert ranges.fetch("--kernels", "--check").code == 0
    # A checkout of the lock file alone is filled from the store where the cache is empty.
    for folder in (ranges.folder, tmp_path / "cache"):
        shutil.rmtree(folder)
    assert ranges.fetch("--kernels", "--frozen").code == 0
    assert ranges.files() == files
    (ranges.folder / f"{STEM}.json").write_text("{}")
    ran = ranges.fetch("--kernels", "--frozen")
    assert ran.code == 3 and f"{STEM}.json: has sha256" in ran.err
    with opened_store(ranged) as sessions:
        add_range(sessions, first=2)
    (ranges.folder / f"{STEM}.json").write_text(files[f"{STEM}.json"])
    assert ranges.fetch("--kernels", "--check").out.count("changed") == 1
    assert ranges.fetch("--kernels").out == "1 written, 2 unchanged, 0 removed, 0 missing\n"
    assert json.loads(ranges.files()[f"{STEM}.json"])["variants"] != variants
    with opened_store(ranged) as sessions, writing(sessions) as session:
        session.query(models.TunedRange).update({"loss_mean": 0.5})
    ran = ranges.fetch("--kernels")
    assert ran.out == "0 written, 2 unchanged, 0 removed, 1 missing\n" and ran.code == 3
    assert "tuned_ranges is not what was stored" in ran.err
    assert ranges.fetch("--kernels", "--check").out.count("not stored") == 1
    ranges.list.write_text(f"{ABSENT}\n")
    ran = ranges.fetch()
    assert ran.code == 3 and f"{ABSENT}: no range is stored" in ran.err
    assert ranges.fetch("--check").code == 3
