"""The list of planted bugs: each still applies, and names tests that exist."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations.planting import ROOT, Mutation, Suite, mutations, plant


@pytest.mark.parametrize("one", mutations(), ids=lambda one: one.id)
def test_each_bug_still_applies(one: Mutation) -> None:
    planted = one.planted((ROOT / one.file).read_text())
    if one.file.endswith(".py"):
        ast.parse(planted)
    assert one.tests
    for path in one.tests:
        assert (ROOT / "tests" / path).is_file(), path


def test_no_bug_is_a_name_that_is_not_there(tmp_path: Path) -> None:
    """Tests would catch the crash, and not what the bug breaks."""
    for one in mutations():
        if one.file.endswith(".py"):
            (tmp_path / f"{one.id}.py").write_text(one.planted((ROOT / one.file).read_text()))
    command = [Path(sys.executable).with_name("ruff"), "check", "--isolated", "--select=F821"]
    done = subprocess.run([*command, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_there_are_a_hundred_with_names_of_their_own() -> None:
    names = [one.id for one in mutations()]
    assert len(names) == len(set(names)) >= 100


@pytest.mark.full
def test_a_bug_is_caught_and_taken_out_again(tmp_path: Path) -> None:
    source, tests = tmp_path / "small.py", tmp_path / "tests"
    source.write_text("def double(x):\n    return 2 * x\n")
    tests.mkdir()
    (tests / "test_small.py").write_text(
        "from small import double\n\ndef test_double():\n    assert double(3) == 6\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = full: slow\naddopts = -ra\n")
    wrong = Mutation("wrong", "small.py", "2 * x", "x + 2", "doubles", ("test_small.py",))
    same = Mutation("same", "small.py", "2 * x", "x * 2", "nothing", ("test_small.py",))

    found = plant(wrong, Suite(tmp_path, 60))
    assert (found.outcome, found.test) == ("make test", "tests/test_small.py::test_double")
    assert plant(same, Suite(tmp_path, 60)).outcome == "survived"
    assert "2 * x" in source.read_text()
