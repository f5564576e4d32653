"""What depends on the processor is a field of its core: no other code knows processors by name."""

import ast
import re
from pathlib import Path

import pytest

import tilewise.kernels
import tilewise.search
from tilewise.kernels.target.cores import DEFAULT, ceiling_gflops, core_of
from tilewise.kernels.target.costs import CASCADE_LAKE, ZEN5

ROOTS = [Path(package.__path__[0]) for package in (tilewise.kernels, tilewise.search)]
NAME = re.compile(
    r"znver|zen_?\d|golden_?cove|sunny_?cove|(cascade|ice|alder|sky)_?lake|has_?well|rapids|epyc|xeon",
    re.IGNORECASE,
)


def code_of(path: Path) -> str:
    """A file less comments and documentation, which may name what measured a number."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return ast.unparse(tree)


@pytest.mark.full
def test_processors_have_names_in_the_tables_of_targets_alone() -> None:
    named = {
        path.relative_to(root).as_posix()
        for root in ROOTS
        for path in root.rglob("*.py")
        if NAME.search(code_of(path))
    }
    tables = {f"target/{name}.py" for name in ("cores", "costs", "features")}
    assert named == tables | {"peers/openblas.py"}  # OpenBLAS's name of its own kernels


@pytest.mark.parametrize(
    ("cpu", "costs", "is_far"),
    [
        *((cpu, CASCADE_LAKE, True) for cpu in ("sapphirerapids", "emeraldrapids")),
        *((cpu, CASCADE_LAKE, False) for cpu in ("skylake-avx512", "cascadelake", "alderlake")),
        *((cpu, ZEN5, False) for cpu in ("znver4", "znver5", "generic", "unheard-of")),
    ],
)
def test_the_last_cache_is_far_where_it_was_measured(cpu: str, costs: object, is_far: bool) -> None:
    core, _ = core_of(cpu)
    assert (core.costs, core.far_l3 is not None) == (costs, is_far)
    assert core.transforms.are_cheap == is_far
    assert (core == DEFAULT) == (cpu in ("generic", "unheard-of"))


@pytest.mark.parametrize(("dtype", "operations"), [("bf16", 1024), ("i8", 2048), ("f32", 64)])
def test_matrix_tiles_raise_the_ceiling(dtype: str, operations: int) -> None:
    vectors = ceiling_gflops("emeraldrapids", (), dtype, 2)
    tiles = ceiling_gflops("emeraldrapids", ("amx-tile",), dtype, 2)
    assert tiles == operations * 5.5 * 2
    assert tiles > vectors or dtype == "f32"
