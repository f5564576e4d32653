"""Patterns of a module's own ops: found again, right when they run, refused where none can be."""

from collections.abc import Sequence

import numpy as np
import pytest

from tests.kernels.dispatches.matching import TARGET, found_in, module_of, name_of, stand_in
from tests.kernels.dispatches.patterns.test_spellings import BOTH, LINALG, SPELLED
from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import empty_aligned
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Register, Schedule, Tile
from tilewise.kernels.target import Target

DENSE = "matmul:m=6,n=32,k=8,dtype=f32,bias,epilogue=relu"
HIGHER = """
#plane = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#last = affine_map<(d0, d1, d2) -> (d2)>
func.func @kernel(%image: tensor<2x3x8xf32>, %weights: tensor<8x32xf32>, %bias: tensor<32xf32>,
                  %out: tensor<2x3x32xf32> {iree.abi.output = 0 : index}) -> tensor<2x3x32xf32> {
  %zero = arith.constant 0.0 : f32
  %flat = tensor.collapse_shape %image [[0, 1], [2]] : tensor<2x3x8xf32> into tensor<6x8xf32>
  %empty = tensor.empty() : tensor<6x32xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<6x32xf32>) -> tensor<6x32xf32>
  %product = linalg.matmul ins(%flat, %weights : tensor<6x8xf32>, tensor<8x32xf32>)
    outs(%init : tensor<6x32xf32>) -> tensor<6x32xf32>
  %wide = tensor.expand_shape %product [[0, 1], [2]] output_shape [2, 3, 32]
    : tensor<6x32xf32> into tensor<2x3x32xf32>
  %target = tensor.empty() : tensor<2x3x32xf32>
  %sum = linalg.generic {indexing_maps = [#last, #plane, #plane],
    iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%bias, %wide : tensor<32xf32>, tensor<2x3x32xf32>) outs(%target : tensor<2x3x32xf32>) {
  ^bb0(%b: f32, %p: f32, %o: f32):
    %s = arith.addf %b, %p : f32
    %r = arith.maximumf %s, %zero : f32
    linalg.yield %r : f32
  } -> tensor<2x3x32xf32>
  return %sum : tensor<2x3x32xf32>
}
"""


def test_every_known_spelling_is_cut_and_found_again() -> None:
    module = module_of(*LINALG)
    cuts = cut_module(module.encode())
    kernels = [stand_in(cut.problem) for cut in cuts]
    own = patterns_of(cuts)
    found = found_in(module, text_of(kernels, TARGET, (), own))
    assert found == {f"f{at}": [name_of(cut.problem)] for at, cut in enumerate(cuts)}
    assert not [cut.reason for cut in cuts if cut.reason]


def test_a_relu_of_tosa_is_a_clamp_and_found() -> None:
    x, w, b = "tensor<1x10x10x4xf32>", "tensor<8x3x3x4xf32>", "tensor<8xf32>"
    y, one = "tensor<1x10x10x8xf32>", "tensor<1xf32>"
    module = "".join(
        f"""
        func.func @f{at}(%x: {x}, %w: {w}, %b: {b}) -> {y} {{
          %z = "tosa.const"() {{values = dense<0.0> : {one}}} : () -> {one}
          %0 = "tosa.conv2d"(%x, %w, %b, %z, %z) {{acc_type = f32, dilation = array<i64: 1, 1>,
              pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>}}
              : ({x}, {w}, {b}, {one}, {one}) -> {y}
          %1 = "tosa.clamp"(%0) {{min_val = 0.0 : f32, max_val = {largest} : f32}} : ({y}) -> {y}
          return %1 : {y}
        }}"""
        for at, largest in enumerate(("3.40282347E+38", "6.0"))
    )
    problem = "conv2d:n=1,h=10,w=10,ci=4,co=8,kh=3,kw=3,pad=1,dtype=f32,bias,epilogue="
    cuts = cut_module(module.encode())
    assert [(cut.problem, cut.reason) for cut in cuts] == [
        (f"{problem}relu", ""),
        (f"{problem}relu6", ""),
    ]
    kernels = [stand_in(cut.problem) for cut in cuts]
    found = found_in(module, text_of(kernels, TARGET, (), patterns_of(cuts)))
    assert found == {f"f{at}": [name_of(cut.problem)] for at, cut in enumerate(cuts)}


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


@pytest.mark.full
def test_an_op_in_a_form_that_nobody_has_foreseen_is_replaced_and_right(host: Target) -> None:
    """Three dims, the bias as the first input, and relu in one op with it."""
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    (cut,) = cut_module(HIGHER.encode())
    assert cut.problem == DENSE
    problem = parse_problem(DENSE)
    kernel = compiled(LibraryEntry(problem, Schedule((Register(2, host.lanes("f32")),))), host)
    assert compiled_with(HIGHER, text_of([kernel], host)).kernels == ()
    made = compiled_with(HIGHER, text_of([kernel], host, (), patterns_of([cut])))
    assert made.kernels == (kernel.name,)
    rng = np.random.default_rng(3)
    arrays = []
    for shape in ((2, 3, 8), (8, 32), (32,), (2, 3, 32)):
        arrays.append(empty_aligned(shape, np.float32))
        arrays[-1][...] = rng.uniform(-1, 1, shape)
    image, weights, bias, out = arrays
    LoadedModule(made.code, open_device(1)).bind("kernel", [(one, "f32") for one in arrays])(1)
    np.testing.assert_allclose(out, np.maximum(image @ weights + bias, 0), atol=1e-5)


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
    rng = np.random.default_rng(3)
    arrays = []
    for shape in shapes:
        arrays.append(empty_aligned(shape, np.float32))
        arrays[-1][...] = rng.uniform(-1, 1, shape)
    expected = np.einsum(letters, *arrays[:2]) + (arrays[2] if around == "%c" else 0)
    given = [(one, "FLOAT_32") for one in arrays]
    (found,) = LoadedModule(made.code, open_device(1)).results("kernel", given)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(CompilerError, match="does not compile"):
        cut_module(b"func.func @f() { nonsense }")
