"""What a command leaves with: a code for each kind of end, and one line for each error."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli
from tilewise.cli.command import Command
from tilewise.cli.commands import doctor
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.fetch.folder import file_errors
from tilewise.kernels.errors import ProblemError, TargetError
from tilewise.search.errors import BudgetError, RunnerError


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (TilewiseError("no answer"), 1, "no answer"),
        (BadInputError("no such thing"), 2, "no such thing"),
        (MissingError("nothing is stored"), 3, "nothing is stored"),
        (ProblemError("m=0 is out of range", "m"), 2, "m=0 is out of range"),
        (TargetError("target 'gpu'"), 2, "target 'gpu'"),
        (BudgetError("trials=0", "trials"), 2, "trials=0"),
        (RunnerError("the child cannot be set up"), 1, "the child cannot be set up"),
        (KeyboardInterrupt(), 130, "interrupted; the finished trials are stored"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_end_has_its_code_and_one_line(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, says: str
) -> None:
    def fail(_options: object) -> None:
        """Fail."""
        raise error

    monkeypatch.setattr(doctor, "COMMANDS", (Command("doctor", fail),))
    ran = cli("doctor")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err == f"tilewise: {says}\n"


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOENT, 2), (errno.EISDIR, 2), (errno.ENOSPC, 1), (errno.EIO, 1)]
)
def test_a_wrong_path_is_bad_input_and_a_full_disk_is_not(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, number: int, code: int
) -> None:
    def write(_options: object) -> None:
        """Write."""
        with file_errors("write", "out"):
            raise OSError(number, "why")

    monkeypatch.setattr(doctor, "COMMANDS", (Command("doctor", write),))
    ran = cli("doctor")
    assert (ran.code, ran.err) == (code, "tilewise: cannot write out: why\n")


def test_a_process_that_is_interrupted_says_so_to_its_shell() -> None:
    code = """
import runpy, signal, sys
from tilewise.cli.command import Command
from tilewise.cli.commands import doctor as commands

def doctor(_options):
    "Wait for Ctrl-C."
    signal.raise_signal(signal.SIGINT)

commands.COMMANDS = (Command("doctor", doctor),)
sys.argv = ["tilewise", "doctor"]
runpy.run_module("tilewise", run_name="__main__")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "tilewise: interrupted; the finished trials are stored\n"


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("a\nb\r\n\tc", "a b c"),
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("\ud800\udcff", r"\ud800\udcff"),
        ("\u202e\u2028x", r"\u202e x"),
        ("é ∞", "é ∞"),
    ],
    ids=ascii,
)
def test_an_error_is_one_line_that_a_terminal_only_shows(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, said: str, shown: str
) -> None:
    def fail(_options: object) -> None:
        """Fail."""
        raise BadInputError(said)

    monkeypatch.setattr(doctor, "COMMANDS", (Command("doctor", fail),))
    assert cli("doctor").err == f"tilewise: {shown}\n"
    typed = cli("doctor", f"x{said}")
    assert typed.err.count("\n") == 1 and typed.err[:-1].isprintable()


@pytest.mark.parametrize("command", ["fetch", "library"])
def test_a_folder_that_cannot_be_is_refused_before_anything_is_tuned(
    cli: Cli, tmp_path: Path, command: str
) -> None:
    listed, file = tmp_path / "list.txt", tmp_path / "file"
    listed.write_text("matmul:m=8,n=8,k=8,dtype=f32\n")
    file.write_text("")
    ran = cli(command, str(listed), "-o", str(file), "--tune-missing", "--trials", "1")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1 and "cannot write" in ran.err, ran.err
