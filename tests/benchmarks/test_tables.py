"""Committed results, the tables made of them, and the commands that make them."""

import ast
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import benchmarks
from benchmarks import results, tables
from benchmarks.declared import BY_HAND, TABLES, Table
from benchmarks.places import RESULTS

ROOT = Path(benchmarks.__file__).parent


def test_readme_has_the_table_of_the_committed_results() -> None:
    text = tables.README.read_text()
    assert tables.written(text) == text, "python -m benchmarks.tables --write"
    assert text.count(tables.BEGIN) == text.count(tables.END) == 1
    assert 2 <= tables.block().count("\n") <= 18


def test_results_of_another_generator_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "generator_hash", lambda: "0a1b2c3d")
    assert tables.version("numba 1, generator 0a1b2c3d") == "this one"
    assert tables.version("numba 1, generator ffffffff") == "earlier (ffffffff)"


def test_every_row_has_problems() -> None:
    for row in tables.ROWS:
        assert re.match(r"\| [^|]+ \| [1-9]\d* \| \d", tables.line(row))


def test_every_result_belongs_to_a_table() -> None:
    known = {name for table in TABLES for name in table.files} | {results.STAMPS.name}
    found = {path.name for path in RESULTS.iterdir() if path.is_file()}
    assert found <= known
    assert {path.name for path in RESULTS.iterdir() if path.is_dir()} <= set(BY_HAND)
    assert len({table.name for table in TABLES}) == len(TABLES)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_tables_command_is_a_module_that_takes_its_arguments(table: Table) -> None:
    module, *arguments = table.command
    path = ROOT.parent / f"{module.replace('.', '/')}"
    source = (path / "__main__.py" if path.is_dir() else path.with_suffix(".py")).read_text()
    for argument in arguments:
        assert not argument.startswith("--") or f'"{argument}"' in source


def programs() -> list[Path]:
    """The modules of benchmarks that are run as programs."""
    return [
        path
        for path in sorted(ROOT.rglob("*.py"))
        if '__name__ == "__main__"' in path.read_text() and "tvm" not in path.name
    ]


@pytest.mark.parametrize("path", programs(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_benchmark_says_by_which_command_it_runs(path: Path) -> None:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    module = ".".join(part for part in parts if part != "__main__")
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc is not None and f"python -m {module}" in doc


PRINTS = "import sys; print('a table'); sys.exit({code})"


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results, and one table whose program prints and ends with a code."""
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "STAMPS", tmp_path / "stamps.json")
    return tmp_path


def program(folder: Path, name: str, code: int) -> Table:
    (folder / f"{name}.py").write_text(PRINTS.format(code=code))
    return Table(name, (name,), (f"{name}.txt",), 1)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, tables_: list[Table], *given: str) -> int:
    monkeypatch.setattr(results, "TABLES", tables_)
    monkeypatch.setattr(sys, "argv", ["results", *given])
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return results.main()


def test_what_is_of_the_present_version_is_not_measured_again(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = program(elsewhere, "one", 0)
    assert run(monkeypatch, elsewhere, [table]) == 0
    kept = elsewhere / "one.txt"
    assert kept.read_text() == "$ python -m one\na table\n"
    assert results.state(table, results.stamps()) == "present"
    kept.write_text("untouched")
    assert run(monkeypatch, elsewhere, [table]) == 0 and kept.read_text() == "untouched"
    assert "0 of 1 tables" in capsys.readouterr().out
    assert run(monkeypatch, elsewhere, [table], "--again") == 0 and "a table" in kept.read_text()
    monkeypatch.setattr(results, "generator_hash", lambda: "another")
    assert results.state(table, results.stamps()) == "stale"


def test_a_table_that_fails_keeps_its_old_result_and_the_others_go_on(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [program(elsewhere, "bad", 3), program(elsewhere, "good", 0)]
    lacking = replace(program(elsewhere, "lacking", 0), needs=("no_such_package",))
    (elsewhere / "bad.txt").write_text("old")
    assert run(monkeypatch, elsewhere, [*made, lacking]) == 1
    assert (elsewhere / "bad.txt").read_text() == "old"
    assert set(results.stamps()) == {"good"}
    told = capsys.readouterr().out
    assert "bad: exit status 3" in told and "needs no_such_package" in told


def test_make_results_lists_what_there_is() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.results", "--list"],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) == len(TABLES)
