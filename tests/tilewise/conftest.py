"""The command line as users meet it: arguments in; exit code, stdout and stderr out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilewise.cli import main


@dataclass(frozen=True)
class Ran:
    """What one command did."""

    code: int
    out: str
    err: str


Cli = Callable[..., Ran]


@pytest.fixture
def database(tmp_path: Path) -> str:
    """URL of a database that does not exist yet."""
    return f"sqlite:///{tmp_path / 'results.db'}"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, database: str) -> Cli:
    """Run a command in this process against `database`."""
    monkeypatch.setenv("TILEWISE_DB", database)
    monkeypatch.delenv("TILEWISE_SERVER", raising=False)

    def run(*arguments: str) -> Ran:
        try:
            code = main(arguments)
        except SystemExit as left:
            code = int(left.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
