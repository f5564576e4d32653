"""The same models in the dialects of three frameworks."""

import pytest

from tests.kernels.mlir.frontend.dialects import DIALECTS
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialect(name: str) -> None:
    text, expected = DIALECTS[name]
    imported = read_module(text.encode())
    assert not imported.skipped
    found: dict[str, list[str]] = {}
    for one in imported.occurrences:
        found.setdefault(one.where.split()[0], []).append(one.problem)
    canonical = {
        function: [parse_problem(problem).canonical for problem in problems]
        for function, problems in expected.items()
    }
    assert found == canonical
