"""Patterns of a module's own ops: found again, right when they run, refused where none can be."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.kernels.dispatches.matching import (
    TARGET,
    found_in,
    module_of,
    name_of,
    random_arrays,
    stand_in,
)
from tests.kernels.dispatches.patterns.test_spellings import BOTH, LINALG, SPELLED
from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Register, Schedule, Tile
from tilewise.kernels.target import Target


def test_every_known_spelling_is_cut_and_found_again() -> None:
    module = module_of(*LINALG)
    cuts = cut_module(module.encode())
    kernels = [stand_in(cut.problem) for cut in cuts]
    own = patterns_of(cuts)
    found = found_in(module, text_of(kernels, TARGET, (), own))
    assert found == {f"f{at}": [name_of(cut.problem)] for at, cut in enumerate(cuts)}
    assert not [cut.reason for cut in cuts if cut.reason]


@pytest.mark.parametrize("dialect", ["torch", "stablehlo"])
def test_modules_of_frameworks_are_replaced_to_the_last_op(dialect: str) -> None:
    module = (SPELLED / f"{dialect}.mlir").read_text()
    cuts = cut_module(module.encode())
    library = text_of([stand_in(cut.problem) for cut in cuts], TARGET, (), patterns_of(cuts))
    found = found_in(module, library)
    assert sorted(name for names in found.values() for name in names) == sorted(
        name_of(cut.problem) for cut in cuts
    )
    assert len(cuts) >= len(BOTH) // 3


def contraction(kind: str, letters: str, shapes: Sequence[tuple[int, ...]], around: str) -> str:
    """A module with a contraction as `numpy.einsum` spells it, from a tensor or from zeros."""
    names = [part.strip() for part in letters.replace("->", ",").split(",")]
    dims = list(dict.fromkeys("".join(names)))
    loops = ", ".join(dims)
    maps = ", ".join(f"affine_map<({loops}) -> ({', '.join(name)})>" for name in names)
    kinds = ", ".join('"parallel"' if one in names[2] else '"reduction"' for one in dims)
    a, b, c = (f"tensor<{'x'.join(map(str, shape))}x{kind}>" for shape in shapes)
    return f"""
      func.func @kernel(%a: {a}, %b: {b}, %c: {c}) -> {c} {{
        %zero = arith.constant 0.0 : {kind}
        %e = tensor.empty() : {c}
        %z = linalg.fill ins(%zero : {kind}) outs(%e : {c}) -> {c}
        %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
          ins(%a, %b : {a}, {b}) outs({around} : {c}) {{
        ^bb0(%x: {kind}, %y: {kind}, %w: {kind}):
          %p = arith.mulf %x, %y : {kind}
          %s = arith.addf %w, %p : {kind}
          linalg.yield %s : {kind}
        }} -> {c}
        return %r : {c}
      }}"""


SIZES = dict(zip("bhijkmnpqdx", (2, 3, 5, 32, 19, 18, 17, 4, 5, 8, 3), strict=True))


def shapes_of(letters: str) -> list[tuple[int, ...]]:
    """The shapes of both inputs and of the result."""
    names = letters.replace("->", ",").split(",")
    return [tuple(SIZES[one] for one in name) for name in names]


@pytest.mark.full
@pytest.mark.parametrize(
    ("letters", "around"),
    [
        ("hik,kj->ihj", "%c"),
        ("bqhd,bkhd->bhqk", "%z"),
        ("phxi,qhxj->pqij", "%z"),
        ("kxm,nxk->nm", "%c"),
    ],
)
def test_what_lies_in_another_order_is_turned_for_the_kernel(
    host: Target, letters: str, around: str
) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    shapes = shapes_of(letters)
    module = contraction("f32", letters, shapes, around)
    (cut,) = cut_module(module.encode())
    assert cut.pattern is not None, cut.reason
    assert any(cut.pattern.turns)
    each = [Tile("batch", 1)] if "batch=" in cut.problem else []
    schedule = Schedule((*each, Register(1, host.lanes("f32"))))
    kernel = compiled(LibraryEntry(parse_problem(cut.problem), schedule), host)
    made = compiled_with(module, text_of([kernel], host, (), patterns_of([cut])))
    assert made.kernels == (kernel.name,)
    arrays = random_arrays(*shapes)
    expected = np.einsum(letters, *arrays[:2]) + (arrays[2] if around == "%c" else 0)
    given = [(one, "FLOAT_32") for one in arrays]
    (found,) = LoadedModule(made.code, open_device(1)).results("kernel", given)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(CompilerError, match="does not compile"):
        cut_module(b"func.func @f() { nonsense }")
