import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.cli.files import read_text
from tilewise.errors import BadInputError
from tilewise.fetch.folder import sha256
from tilewise.fetch.lock import Lock, LockEntry, file_name
from tilewise.fetch.problems import read_problems
from tilewise.kernels.problem import parse_problem

ONE = "matmul:m=64,n=48,k=32,dtype=f32"
TWO = "conv2d:n=1,h=8,w=8,ci=4,co=4,kh=3,kw=3,dtype=f32,bias,epilogue=relu"


def test_a_list_has_a_problem_a_line():
    text = f"# models\n\n{ONE}  # the first\n  {TWO}\nmatmul: k=32, n=48, m=64, dtype=f32\n"
    assert [p.canonical for p in read_problems("x.txt", text)] == [
        ONE,
        parse_problem(TWO).canonical,
    ]


def test_every_bad_line_is_named():
    with pytest.raises(BadInputError) as caught:
        read_problems("x.txt", f"{ONE}\ngemm:m=1\n{TWO}\nmatmul:m=0,n=1,k=1,dtype=f32\n")
    said = str(caught.value)
    assert "x.txt: line 2:" in said and "line 4:" in said and "line 3" not in said


@pytest.mark.parametrize("text", ["", "# nothing\n\n"])
def test_a_list_of_nothing_is_refused(text):
    with pytest.raises(BadInputError, match="contains no problem"):
        read_problems("x.txt", text)


def test_a_suite_is_a_list(tmp_path: Path):
    path = tmp_path / "suite.json"
    as_object = {"op": "matmul", "m": 64, "n": 48, "k": 32, "dtype": "f32", "count": 3}
    path.write_text(json.dumps({"name": "s", "problems": [as_object, TWO, ONE]}))
    found = read_problems(str(path), path.read_text())
    assert [problem.canonical for problem in found] == [ONE, parse_problem(TWO).canonical]


@pytest.mark.parametrize("ending", ["txt", "json"])
def test_a_list_of_an_editor_that_marks_utf_8_is_read(ending: str, tmp_path: Path):
    path = tmp_path / f"list.{ending}"
    text = f"{ONE}\r\n" if ending == "txt" else json.dumps({"problems": [ONE]})
    path.write_bytes(text.encode("utf-8-sig"))
    found = read_problems(str(path), read_text(str(path)))
    assert [problem.canonical for problem in found] == [ONE]


NUMBERS = st.integers(1, 2**20)


@given(
    st.lists(
        st.builds(
            "matmul:batch={},m={},n={},k={},dtype={}{}{}".format,
            *([NUMBERS] * 4),
            st.sampled_from(["f32", "i8", "bf16"]),
            st.sampled_from(["", ",transpose_a", ",transpose_b", ",transpose_a,transpose_b"]),
            st.sampled_from(["", ",bias", ",epilogue=relu", ",bias,epilogue=relu"]),
        ),
        min_size=2,
        max_size=30,
    )
)
def test_names_are_safe_and_each_for_one_problem(texts):
    problems = {parse_problem(text) for text in texts}
    names = {file_name(problem, "cpu") for problem in problems}
    assert len(names) == len(problems)
    for name in names:
        assert len(name.encode()) <= 120
        assert all(c.isalnum() or c in "._-" for c in name) and name[0].isalnum()


def entry(path="b.cpu.mlir", **changes):
    values = {
        "path": path, "problem": ONE, "key": sha256(ONE), "kind": "cpu",
        "target": "cpu:x,threads=1", "toolchain": 'a "quoted" one, 2.0', "schedule": "s",
        "sha256": "0" * 64, "gflops": 12.5, "interval": (12.0, 13.0),
    }  # fmt: skip
    return LockEntry(**{**values, **changes})


def test_a_lock_file_comes_back_as_it_was():
    lock = Lock.of([entry(), entry("a.py", etag="e", kind="kernel"), entry("c", match="toolchain")])
    text = lock.render()
    assert Lock.parse(text, "x") == lock
    assert Lock.parse(text, "x").render() == text
    assert list(lock.entries) == ["a.py", "b.cpu.mlir", "c"], "sorted, whatever the list's order"


@given(st.text(max_size=40), st.floats(0.01, 1e6))
def test_any_text_comes_back(text, speed):
    if not text.isprintable():
        return
    lock = Lock.of([entry(toolchain=text, gflops=speed)])
    assert Lock.parse(lock.render(), "x") == lock


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not a lock file"),
        ("version = 2\n", "version=2 is not one that this tilewise reads, 1"),
        ("", "version=None"),
        ('version = "1"\n', "version='1'"),
        ("version = true\n", "version=True"),
        ("version = 1\n<<<<<<< ours\n", "it holds a merge's marks"),
        ("version = 1\n[[file]]\npath = 'x'\n", "Entry has no key, kind"),
        ("version = 1\nfile = 3\n", "is not a lock file"),
        ("version = 1\nfile = [3]\n", "is not a lock file"),
        (f"version = {'9' * 5000}\n", "is not a lock file"),
        (f"version = 1\nx = {'[' * 100_000}\n", "is not a lock file"),
    ],
)
def test_what_is_no_lock_file(text, said):
    with pytest.raises(BadInputError) as caught:
        Lock.parse(text, "tilewise.lock")
    assert said in str(caught.value) and "tilewise.lock" in str(caught.value)


def test_two_blocks_of_one_file_are_refused():
    """Which of them holds would not show in a diff."""
    text = Lock.of([entry("f")]).render()
    block = text[text.index("[[file]]") :]
    with pytest.raises(BadInputError, match="is not a lock file: f has two blocks"):
        Lock.parse(text + block.replace("1" * 64, "2" * 64), "tilewise.lock")
