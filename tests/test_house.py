"""Rooms stay small enough to be seen at once, and so do functions and classes."""

import ast
import functools
import re
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("kernels", "search", "service", "tilewise", "benchmarks", "docs")
MOST_FILES, MOST_LINES_OF_FUNCTION, MOST_LINES_OF_CLASS, USUAL_LINES = 12, 60, 200, 10


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A file as a tree, which tests only look at."""
    return ast.parse(path.read_text())


@functools.cache
def definitions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Each definition with its place."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node)
        for path in sources()
        for node in ast.walk(parsed(path))
        if isinstance(node, kinds)
    ]


def lengths(*kinds: type[ast.AST]) -> dict[str, int]:
    """Lines of each definition, by its place."""
    return {
        place: node.end_lineno - node.lineno + 1
        for place, node in definitions()
        if isinstance(node, kinds)
    }


def test_a_room_is_not_crowded_and_says_what_it_is() -> None:
    for folder in sorted({path.parent for path in sources()}):
        files = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        of_one_kind = folder == ROOT / "kernels" / "steps"  # a file each
        assert of_one_kind or len(files) <= MOST_FILES, (
            f"{folder.relative_to(ROOT)} has {len(files)} files"
        )
        idea = ast.get_docstring(parsed(folder / "__init__.py"))
        assert idea, f"{folder.relative_to(ROOT)} does not say what it is for"


def defined(folder: Path) -> set[str]:
    """What the files of a room define at their top level, the files and rooms themselves too."""
    names = {path.stem for path in folder.rglob("*.py")} | {
        path.parent.name for path in folder.rglob("*.py")
    }
    for path in folder.rglob("*.py"):
        for node in parsed(path).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def test_a_rooms_face_is_there() -> None:
    told = 0
    for path in sources():
        idea = ast.get_docstring(parsed(path)) or ""
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
