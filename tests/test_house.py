"""Rooms stay small enough to be seen at once, and so do functions and classes."""

import ast
import re
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("kernels", "search", "service", "tilewise", "benchmarks", "docs")
MOST_FILES, MOST_LINES_OF_FUNCTION, MOST_LINES_OF_CLASS, USUAL_LINES = 12, 60, 200, 10


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def lengths(*kinds: type[ast.AST]) -> dict[str, int]:
    """Lines of each definition, by its place."""
    found = {}
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kinds):
                place = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                found[place] = node.end_lineno - node.lineno + 1
    return found


def test_a_room_is_not_crowded_and_says_what_it_is() -> None:
    for folder in sorted({path.parent for path in sources()}):
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        assert len(files) <= MOST_FILES, f"{folder.relative_to(ROOT)} has {len(files)} files"
        idea = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
        assert idea, f"{folder.relative_to(ROOT)} does not say what it is for"


def defined(folder: Path) -> set[str]:
    """What the files of a room define at their top level, the files and rooms themselves too."""
    names = {path.stem for path in folder.rglob("*.py")} | {
        path.parent.name for path in folder.rglob("*.py")
    }
    for path in folder.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_a_rooms_face_is_there() -> None:
    told = 0
    for path in sources():
        idea = ast.get_docstring(ast.parse(path.read_text())) or ""
        face = idea.partition("Face: ")[2]
        if path.name != "__init__.py" or not face:
            continue
        names = set(re.findall(r"`([A-Za-z_]\w*)`", face))
        missing = names - defined(path.parent)
        assert not missing, f"{path.relative_to(ROOT)} names {missing}"
        told += len(names)
    assert told > 50


@pytest.mark.parametrize(
    ("kinds", "most"),
    [
        ((ast.FunctionDef, ast.AsyncFunctionDef), MOST_LINES_OF_FUNCTION),
        ((ast.ClassDef,), MOST_LINES_OF_CLASS),
    ],
    ids=["functions", "classes"],
)
def test_definitions_are_short(kinds: tuple[type[ast.AST], ...], most: int) -> None:
    long = {place: lines for place, lines in lengths(*kinds).items() if lines > most}
    assert not long


def test_functions_are_usually_very_short() -> None:
    assert median(lengths(ast.FunctionDef, ast.AsyncFunctionDef).values()) <= USUAL_LINES
