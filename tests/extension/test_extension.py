"""A search with a step, an instruction, a micro-kernel and a parameter that Tilewise has not.

They are in the files beside this one. `TILEWISE_EXTENSIONS` alone makes commands know them.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brief import python_path
from tests.cases import some
from tests.extension.fmuladd import FMULADDS
from tilewise.kernels.system.children import child_environment

PROBLEM = "matmul:m=61,n=100,k=72,dtype=f32,bias"
REGISTRATION = "tests.extension.registration"
NAMES = {one.name for one in FMULADDS}

Command = Callable[..., "subprocess.CompletedProcess[str]"]


def command_in(folder: Path) -> Command:
    """Runs a command on a database in a folder, with some extensions."""

    def run(*arguments: str, extensions: str = REGISTRATION) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "tilewise", *arguments],
            cwd=folder,
            env=child_environment(
                PYTHONPATH=python_path(Path(__file__).parents[2], folder),
                TILEWISE_DB=f"sqlite:///{folder / 'results.db'}",
                TILEWISE_EXTENSIONS=extensions,
            ),
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the database of one search."""
    return tmp_path_factory.mktemp("extension")


@pytest.fixture(scope="module")
def command(folder: Path) -> Command:
    """Runs a command on that database."""
    return command_in(folder)


def told(ran: "subprocess.CompletedProcess[str]") -> Any:
    """The JSON that a command printed."""
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def tuned(command: Command) -> Any:
    """What a search of a few trials found."""
    return told(command("tune", PROBLEM, "--trials", "3", "--json"))


def steps_of(result: Any) -> dict[str, Any]:
    """The steps of a best schedule by name, and `n` and `m` for its tiles."""
    return {step["dim"] if step["step"] == "tile" else step["step"]: step for step in result}


@pytest.mark.full
def test_it_is_tuned_and_proven(command: Command, tuned: Any) -> None:
    steps = steps_of(tuned["best"]["steps"])
    assert tuned["trials"]["timed"] + tuned["trials"]["pruned"] == 3
    assert steps["reorder"] == {"step": "reorder", "dim": "n"}
    assert tuned["best"]["instruction"] == steps["instruction"]["op"] in NAMES
    assert tuned["proof"]["applied"] and tuned["proof"]["executed"]
    assert tuned["proof"]["max_error"] <= tuned["proof"]["tolerance"]
    trials = told(command("trials", PROBLEM, "--format", "json", extensions=""))
    assert {trial["params"]["blocks"] for trial in trials} <= {2, 3}
    for trial in trials:
        found, count = steps_of(trial["steps"]), trial["params"]["blocks"]
        assert found["n"]["size"] == count * found["register"]["cols"]
        assert found["m"]["size"] == count * found["register"]["rows"]


@pytest.mark.full
def test_its_script_and_its_picture_show_the_loops_exchanged(
    command: Command, tuned: Any, folder: Path
) -> None:
    script = command("script", PROBLEM, extensions="").stdout
    loops = re.findall(r"^//\s+for (\w+) step", script, re.MULTILINE)
    assert loops[:2] == ["m", "n"] and "// reorder dim=n" in script
    assert command("plot", PROBLEM, "--kind", "nest", "-o", "nest.svg").returncode == 0
    drawn = re.findall(r">for (\w) in steps of (\d+)<", (folder / "nest.svg").read_text())
    steps = steps_of(tuned["best"]["steps"])
    assert drawn[:2] == [(dim, str(steps[dim]["size"])) for dim in ("m", "n")]


@pytest.mark.full
def test_its_kernel_is_made_by_the_micro_kernel_and_exported(
    command: Command, tuned: Any, folder: Path
) -> None:
    unroll = steps_of(tuned["best"]["steps"]).get("unroll", {"factor": 1})["factor"]
    assert told(command("asm", PROBLEM, "--json"))["steps"] == 2 * unroll
    assert command("kernel", PROBLEM, "-o", "kernel.py").returncode == 0
    text = (folder / "kernel.py").read_text()
    assert "llvm.fmuladd" in text and "llvm.fma." not in text
    ran = subprocess.run(
        [sys.executable, "kernel.py"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ran.stdout.startswith(f"OK {PROBLEM}"), ran.stderr
    proof = told(command("kernel", PROBLEM, "--format", "object", "--json"))["proof"]
    assert proof["max_error"] <= proof["tolerance"]


@pytest.mark.full
def test_without_the_extension_it_is_shown_and_not_run(command: Command, tuned: Any) -> None:
    before = told(command("trials", PROBLEM, "--format", "json", extensions=""))
    shown = told(command("show", PROBLEM, "--json", extensions=""))
    assert shown["best"]["steps"] == tuned["best"]["steps"] and shown["stale"]
    for refused in (("kernel", PROBLEM), ("plot", PROBLEM, "--kind", "nest", "-o", "x.svg")):
        ran = command(*refused, extensions="")
        assert (ran.returncode, ran.stdout) == (2, "") and ran.stderr.count("\n") == 1
        assert "'reorder'" in ran.stderr and "TILEWISE_EXTENSIONS names modules" in ran.stderr
    other = told(command("tune", PROBLEM, "--trials", "1", "--json", extensions=""))
    assert "reorder" not in steps_of(other["best"]["steps"]) and other["proof"]["executed"]
    after = told(command("trials", PROBLEM, "--format", "json", extensions=""))
    assert [trial for trial in after if trial in before] == before and len(after) > len(before)
    assert told(command("show", PROBLEM, "--json"))["best"] == tuned["best"]


BROKEN = {
    "nothing": "ModuleNotFoundError: No module named 'nothing'",
    "wrong": "SyntaxError: invalid syntax",
    "raises": "ZeroDivisionError: division by zero",
    "doubled": "ValueError: step 'tile' is registered as Tile; give another name",
    f"{REGISTRATION},nothing": "ModuleNotFoundError: No module named 'nothing'",
}
MODULES = {
    "wrong": "this is no Python",
    "raises": "1 / 0",
    "doubled": """
from tilewise.kernels.steps import Tile, register_step
register_step(type("Mine", (Tile,), {}))
""",
}


@pytest.mark.parametrize("extensions", some(BROKEN, of=5))
def test_a_broken_extension_is_one_line_and_changes_nothing(
    extensions: str, tmp_path: Path
) -> None:
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    ran = command_in(tmp_path)("tune", PROBLEM, "--trials", "9", extensions=extensions)
    assert (ran.returncode, ran.stdout) == (2, "")
    broken = extensions.rpartition(",")[2]
    begin = f"tilewise: TILEWISE_EXTENSIONS: module '{broken}' cannot be imported"
    assert ran.stderr.startswith(begin) and ran.stderr.count("\n") == 1
    assert BROKEN[extensions] in ran.stderr
    assert not (tmp_path / "results.db").exists()
