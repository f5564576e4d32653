"""Committed results, the tables made of them, and the commands that make them."""

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import benchmarks
from benchmarks import results, tables
from benchmarks.declared import BY_HAND, TABLES, Table

ROOT = Path(benchmarks.__file__).parent


def test_readme_and_pages_have_the_tables_of_the_stored_results() -> None:
    text = tables.README.read_text()
    assert tables.written(text) == text, "python -m benchmarks.tables --write"
    assert text.count(tables.BEGIN) == text.count(tables.END) == 1
    assert len(tables.ROWS) <= 8
    for folder in tables.machines():
        assert (folder / tables.PAGE).read_text() == tables.page(folder)


def test_a_row_has_a_figure_for_each_group(tmp_path: Path) -> None:
    problems = [
        {"problem": f"matmul:m={m},n=8,k=8,dtype=i8", "count": count, "ours": {"time_us": 10.0},
         "peers": {"iree": {"time_us": 10.0 * ratio}}, "oracle": {"peer": "iree"}, "ratio": ratio}
        for m, ratio, count in ((1, 2.0, 1), (16, 4.0, 1), (128, 1.0, 3), (128, 4.0, 1))
    ]  # fmt: skip
    (tmp_path / "s.json").write_text(json.dumps({"problems": problems}))
    row = tables.Row("LLaMA", "s", tables.ROWS[-1].groups)
    cells = "4 | iree | 2.00 / 4.00 / 2.00 | 2.00 / 4.00 / 1.75 | 2.00 / 4.00 / 1.00"
    assert tables.line(row, tmp_path) == f"| LLaMA | {cells} |"


def test_every_result_belongs_to_a_table() -> None:
    known = {name for table in TABLES for name in table.files} | {results.STAMPS, tables.PAGE}
    for folder in tables.machines():
        assert {path.name for path in folder.iterdir() if path.is_file()} <= known
        assert {path.name for path in folder.iterdir() if path.is_dir()} <= set(BY_HAND)
    assert len({table.name for table in TABLES}) == len(TABLES)


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


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results of this machine."""
    monkeypatch.setattr(results, "results_of", lambda _target: tmp_path)
    monkeypatch.setattr(results, "ROOT", tmp_path)
    return tmp_path


def program(folder: Path, name: str, code: int) -> Table:
    (folder / f"{name}.py").write_text(f"print('a table'); raise SystemExit({code})")
    return Table(name, (name,), (f"{name}.txt",), 1, in_readme=True)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, tables_: list[Table], *given: str) -> int:
    monkeypatch.setattr(results, "TABLES", tables_)
    monkeypatch.setattr(sys, "argv", ["results", *given])
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return results.main()


def test_what_is_of_the_present_version_is_not_measured_again(elsewhere, monkeypatch, capsys):
    table = program(elsewhere, "one", 0)
    assert run(monkeypatch, elsewhere, [table]) == 0
    kept = elsewhere / "one.txt"
    assert kept.read_text() == "$ python -m one\na table\n"
    assert results.state(table, elsewhere) == "present"
    kept.write_text("untouched")
    assert run(monkeypatch, elsewhere, [table]) == 0 and kept.read_text() == "untouched"
    assert "0 of 1 tables" in capsys.readouterr().out
    assert run(monkeypatch, elsewhere, [table], "--again") == 0 and "a table" in kept.read_text()
    monkeypatch.setattr(results, "generator_hash", lambda: "another")
    assert results.state(table, elsewhere) == "stale"


def test_a_table_that_fails_keeps_its_old_result(elsewhere: Path, monkeypatch, capsys) -> None:
    """And the others go on."""
    made = [program(elsewhere, "bad", 3), program(elsewhere, "good", 0)]
    lacking = replace(program(elsewhere, "lacking", 0), needs=("no_such_package",))
    (elsewhere / "bad.txt").write_text("old")
    assert run(monkeypatch, elsewhere, [*made, lacking]) == 1
    assert (elsewhere / "bad.txt").read_text() == "old"
    assert set(results.stamps(elsewhere)) == {"good"}
    printed = capsys.readouterr().out
    assert "bad: exit status 3" in printed and "needs no_such_package" in printed


def test_make_results_lists_what_there_is() -> None:
    command = [sys.executable, "-m", "benchmarks.results", "--list"]
    listed = subprocess.check_output(command, cwd=ROOT.parent, text=True).splitlines()
    assert len(listed) == sum(table.in_readme for table in TABLES)
    assert {row.suite for row in tables.ROWS} == {text.split()[0] for text in listed}


IMPORTS = """
import importlib, pkgutil, sys
import benchmarks

for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:  # what only some benchmarks need
        assert not error.name.startswith(("tilewise", "benchmarks", "examples")), error
"""


@pytest.mark.full
def test_every_benchmark_can_be_imported() -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", IMPORTS], cwd=ROOT.parent, check=True)
