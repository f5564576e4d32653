"""What stands around a product is taken into its problem where that is the same, and only there."""

import pytest

from tests.kernels.mlir.frontend.spellings import GLOBALS, SPELLINGS
from tilewise.kernels.mlir.frontend.graph import Imported
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


@pytest.fixture(scope="module")
def imported() -> Imported:
    texts = [text for text, _ in SPELLINGS.values()]
    return read_module("\n".join([GLOBALS, *texts]).encode())


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_spelling_is_read_as(name: str, imported: Imported) -> None:
    found = [one for one in imported.occurrences if one.where.startswith(f"@{name} ")]
    refused = [one for one in imported.skipped if one.where.startswith(f"@{name} ")]
    assert found, refused
    assert found[0].problem == parse_problem(SPELLINGS[name][1]).canonical
