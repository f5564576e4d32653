"""Passes over rows: cut out of modules, found again, right, and left where others read a value."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.models.bert import bert
from examples.models.spellings import spelled
from tilewise.kernels.dispatches.compilation import Replaced, compiled_with, replaced_in
from tilewise.kernels.dispatches.cutting.cut import cut_apart
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.dispatches.passes.alone import expected
from tilewise.kernels.dispatches.passes.code import compiled_pass
from tilewise.kernels.dispatches.passes.row_pass import RowPass, distinct
from tilewise.kernels.mlir.iree.compiler import compile_module
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import empty_aligned
from tilewise.kernels.target import Target

Array = np.ndarray[Any, Any]
TORCH = Path(__file__).with_name("torch.mlir")
ROWS = "affine_map<(d0, d1) -> (d0, d1)>"
EACH = "affine_map<(d0, d1) -> (d0)>"


def library(passes: tuple[RowPass, ...], target: Target) -> str:
    """With each pass once."""
    made = [compiled_pass(one, target) for one in distinct(passes)]
    return text_of([], target, (), {}, made)


def ran(code: bytes, entry: str, *arrays: Array) -> list[Array]:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    given = []
    for array in arrays:
        held = empty_aligned(array.shape, np.float32)
        held[...] = array
        given.append((held, "FLOAT_32"))
    return LoadedModule(code, open_device(1)).results(entry, given)


def drawn(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def test_a_transformers_passes_are_found_in_every_layer_and_right(host: Target) -> None:
    source = spelled(bert(True))
    passes = cut_apart(source.encode()).passes
    found = [one.label for one in passes]
    assert found.count("32 rows of 16: copy") == 8  # heads apart, and together again
    assert sum("exp" in label for label in found) == 2
    assert sum("rsqrt" in label for label in found) == 4
    assert sum("erf" in label for label in found) == 2
    assert all(one.after for one in passes)
    made = compiled_with(source, library(passes, host.with_threads(3)))
    assert len(made.kernels) == len(passes)
    (given,) = drawn((16, 32))
    alone = ran(compile_module(source), "main", given)
    np.testing.assert_allclose(ran(made.code, "main", given)[0], alone[0], rtol=0, atol=1e-5)


def softmax(x: Array) -> Array:
    power = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(power / power.sum(axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def of_torch(host: Target) -> tuple[tuple[RowPass, ...], Replaced]:
    """The passes of PyTorch's softmax, layer norm and gelu, and what they make of the module."""
    module = TORCH.read_bytes()
    passes = cut_apart(module).passes
    return passes, compiled_with(module, library(passes, host))


def test_pytorchs_spellings_are_passes_of_their_own(
    of_torch: tuple[tuple[RowPass, ...], Replaced],
) -> None:
    passes, made = of_torch
    assert [one.label for one in passes] == [
        "256 rows of 32: row larger, subtract, exp, row sum, divide, multiply",
        "64 rows of 48: row sum, divide, subtract, multiply, add, rsqrt",
        "2 rows of 1536: divide, erf, add, multiply",
    ]
    assert len(made.kernels) == len(passes)
    x, y, gamma, beta = drawn((2, 4, 32, 32), (2, 32, 48), (48,), (48,))
    soft, norm, erf, _ = ran(made.code, "main", x, y, gamma, beta)
    np.testing.assert_allclose(soft, softmax(x.astype(np.float64)), atol=1e-6)
    wide = y.astype(np.float64)
    apart = wide - wide.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.square(apart).mean(axis=-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(norm, apart / deviation * gamma + beta, atol=1e-5)
    (gelu,) = (one for one in passes if "erf" in one.label)
    np.testing.assert_allclose(erf.reshape(2, -1), expected(gelu, [y]), atol=1e-6)


def test_a_row_with_a_nan_is_nan_and_others_are_not(
    of_torch: tuple[tuple[RowPass, ...], Replaced],
) -> None:
    x, *others = drawn((2, 4, 32, 32), (2, 32, 48), (48,), (48,))
    for column in (0, 13, 31):
        x[0, 1, column] = np.nan if column != 13 else 1.0
    x[1, 2, 3] = -np.inf
    x[1, 2, 3, 7] = 2.0
    x[1, 3, 4, 5] = np.nan
    soft = ran(of_torch[1].code, "main", x, *others)[0]
    with np.errstate(invalid="ignore"):
        exact = softmax(x.astype(np.float64))
    assert np.isnan(exact).any() and np.isfinite(exact).any()
    np.testing.assert_allclose(soft, exact, atol=1e-6)


def scaled_softmax(by: float, also: str = "%power") -> str:
    """A function of products that are scaled, then a softmax; a second result is read, too."""
    kinds = '["parallel", "parallel"]'
    summed = '["parallel", "reduction"]'
    wide, narrow = "tensor<6x40xf32>", "tensor<6xf32>"

    def generic(name: str, maps: str, kind: str, ins: str, outs: str, body: str, to: str) -> str:
        return f"""
          {name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = {kind}}}
            ins({ins}) outs({outs} : {to}) {{{body}}} -> {to}"""

    own, of_row = f"{ROWS}, {ROWS}", f"{ROWS}, {EACH}"
    both = f"{ROWS}, {EACH}, {ROWS}"
    two = "^bb0(%a: f32, %o: f32):"
    three = "^bb0(%a: f32, %b: f32, %o: f32):"
    return f"""
        func.func @main(%x: tensor<6x9xf32>, %y: tensor<9x40xf32>) -> ({wide}, {wide}) {{
          %zero = arith.constant 0.0 : f32
          %least = arith.constant 0xFF800000 : f32
          %by = arith.constant {by} : f32
          %e = tensor.empty() : {wide}
          %n = tensor.empty() : {narrow}
          %z = linalg.fill ins(%zero : f32) outs(%e : {wide}) -> {wide}
          %zn = linalg.fill ins(%zero : f32) outs(%n : {narrow}) -> {narrow}
          %ln = linalg.fill ins(%least : f32) outs(%n : {narrow}) -> {narrow}
          %p = linalg.matmul ins(%x, %y : tensor<6x9xf32>, tensor<9x40xf32>)
            outs(%z : {wide}) -> {wide}
          {
        generic(
            "%s",
            own,
            kinds,
            f"%p : {wide}",
            "%e",
            f"{two} %1 = arith.mulf %a, %by : f32 linalg.yield %1 : f32",
            wide,
        )
    }
          {
        generic(
            "%most",
            of_row,
            summed,
            f"%s : {wide}",
            "%ln",
            f"{two} %1 = arith.maximumf %a, %o : f32 linalg.yield %1 : f32",
            narrow,
        )
    }
          {
        generic(
            "%power",
            both,
            kinds,
            f"%s, %most : {wide}, {narrow}",
            "%e",
            f"{three} %1 = arith.subf %a, %b : f32 %2 = math.exp %1 : f32 linalg.yield %2 : f32",
            wide,
        )
    }
          {
        generic(
            "%sum",
            of_row,
            summed,
            f"%power : {wide}",
            "%zn",
            f"{two} %1 = arith.addf %a, %o : f32 linalg.yield %1 : f32",
            narrow,
        )
    }
          {
        generic(
            "%soft",
            both,
            kinds,
            f"%power, %sum : {wide}, {narrow}",
            "%e",
            f"{three} %1 = arith.divf %a, %b : f32 linalg.yield %1 : f32",
            wide,
        )
    }
          return %soft, {also} : {wide}, {wide}
        }}"""


def test_what_nobody_else_reads_is_written_over_and_other_constants_are_left(host: Target) -> None:
    module = scaled_softmax(0.5, "%soft")
    (one,) = cut_apart(module.encode()).passes
    assert one.overwrites == 0
    assert one.after == ("matmul:m=6,n=40,k=9,dtype=f32",)
    lib = library((one,), host)
    made = compiled_with(module, lib)
    assert len(made.kernels) == 1
    x, y = drawn((6, 9), (9, 40))
    exact = softmax(0.5 * (x.astype(np.float64) @ y.astype(np.float64)))
    np.testing.assert_allclose(ran(made.code, "main", x, y)[0], exact, atol=1e-6)
    assert replaced_in(scaled_softmax(0.25, "%soft"), lib) == ()
    assert replaced_in(scaled_softmax(0.5, "%power"), lib) == ()


def test_two_spellings_of_one_computation_are_two_passes(host: Target) -> None:
    module = scaled_softmax(0.5, "%soft")
    swapped = module.replace("arith.addf %a, %o", "arith.addf %o, %a").replace("@main", "@other")
    passes = cut_apart((module + swapped).encode()).passes
    assert passes[0].program == passes[1].program
    calls = replaced_in(module + swapped, library(passes, host))
    assert len(set(calls)) == len(calls) == 2


EXP = f"""%{{name}} = linalg.generic {{{{indexing_maps = [{ROWS}, {ROWS}],
    iterator_types = ["parallel", "parallel"]}}}}
  ins(%{{of}} : tensor<3x20xf32>) outs(%e : tensor<3x20xf32>) {{{{
^bb0(%a: f32, %o: f32):
  %1 = arith.maximumf %a, %zero : f32
  %2 = math.exp %1 : f32
  linalg.yield %2 : f32
}}}} -> tensor<3x20xf32>
"""
LEAST = f"""func.func @main(%x: tensor<3x20xf32>) -> (tensor<3xf32>, tensor<3x20xf32>) {{
  %zero = arith.constant 0.0 : f32
  %least = arith.constant -3.40282347E+38 : f32
  %e = tensor.empty() : tensor<3x20xf32>
  %n = tensor.empty() : tensor<3xf32>
  %ln = linalg.fill ins(%least : f32) outs(%n : tensor<3xf32>) -> tensor<3xf32>
  %most = linalg.generic {{indexing_maps = [{ROWS}, {EACH}],
      iterator_types = ["parallel", "reduction"]}}
    ins(%x : tensor<3x20xf32>) outs(%ln : tensor<3xf32>) {{
  ^bb0(%a: f32, %o: f32):
    %1 = arith.maximumf %a, %o : f32
    linalg.yield %1 : f32
  }} -> tensor<3xf32>
  {EXP.format(name="power", of="x")}
  {EXP.format(name="twice", of="power")}
  return %most, %twice : tensor<3xf32>, tensor<3x20xf32>
}}
func.func @once(%x: tensor<3x20xf32>) -> tensor<3x20xf32> {{
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<3x20xf32>
  {EXP.format(name="power", of="x")}
  return %power : tensor<3x20xf32>
}}
"""


def test_a_start_is_the_least_maximum_and_long_passes_come_first(host: Target) -> None:
    """Of what a pass does another one may be a part, which is found before its end; and the 0 of a
    relu is moved into the body, also where no kernel has one.
    """
    passes = cut_apart(LEAST.encode()).passes
    assert [one.label for one in passes] == [
        "3 rows of 20: row max, max", "1 rows of 60: max, exp", "1 rows of 60: max, exp"
    ]  # fmt: skip
    assert [one.pattern.size for one in passes[1:]] == [3, 2]
    made = compiled_with(LEAST, library(passes, host))
    assert len(made.kernels) == len(set(made.kernels)) == 3
    x = np.full((3, 20), -np.inf, np.float32)
    x[1], x[2, 7] = 5.0, np.nan
    most = ran(made.code, "main", x)[0]
    np.testing.assert_array_equal(most, np.float32([np.finfo(np.float32).min, 5.0, np.nan]))


@pytest.mark.parametrize("also", ["%power", "%p"])
def test_a_value_that_others_read_is_made_and_kept(host: Target, also: str) -> None:
    module = scaled_softmax(0.5, also)
    passes = cut_apart(module.encode()).passes
    assert len(passes) == (2 if also == "%power" else 1)
    assert also != "%p" or passes[0].overwrites is None
    made = compiled_with(module, library(passes, host))
    assert len(made.kernels) == len(passes)
    x, y = drawn((6, 9), (9, 40))
    soft, other = ran(made.code, "main", x, y)
    product = x.astype(np.float64) @ y.astype(np.float64)
    np.testing.assert_allclose(soft, softmax(0.5 * product), atol=1e-6)
    power = np.exp(0.5 * (product - product.max(axis=-1, keepdims=True)))
    np.testing.assert_allclose(other, power if also == "%power" else product, atol=1e-5)


def test_powers_constants_of_f64_and_bf16_are_read_as_they_are(host: Target) -> None:
    """An f64 that becomes an f32 is not one that is rounded to bf16."""
    narrow, wide = "tensor<5x70xbf16>", "tensor<5x70xf32>"
    module = f"""
        func.func @main(%x: {wide}) -> {wide} {{
          %three = arith.constant 3 : i64
          %small = arith.constant 1.0e-03 : f64
          %e = tensor.empty() : {narrow}
          %w = tensor.empty() : {wide}
          %r = linalg.generic {{indexing_maps = [{ROWS}, {ROWS}],
              iterator_types = ["parallel", "parallel"]}} ins(%x : {wide}) outs(%e : {narrow}) {{
          ^bb0(%a: f32, %o: bf16):
            %1 = math.fpowi %a, %three : f32, i64
            %2 = arith.truncf %small : f64 to f32
            %3 = arith.addf %1, %2 : f32
            %4 = math.exp %3 : f32
            %5 = arith.truncf %4 : f32 to bf16
            linalg.yield %5 : bf16
          }} -> {narrow}
          %s = linalg.generic {{indexing_maps = [{ROWS}, {ROWS}],
              iterator_types = ["parallel", "parallel"]}} ins(%r : {narrow}) outs(%w : {wide}) {{
          ^bb0(%a: bf16, %o: f32):
            %1 = arith.extf %a : bf16 to f32
            linalg.yield %1 : f32
          }} -> {wide}
          return %s : {wide}
        }}"""
    passes = cut_apart(module.encode()).passes
    (one,) = passes
    numbers = [step.number for step in one.body if step.name == "number"]
    assert numbers == [float(np.float32(1e-3))]
    made = compiled_with(module, library(passes, host))
    assert len(made.kernels) == 1
    (x,) = drawn((5, 70))
    exact = np.exp(x.astype(np.float64) ** 3 + 1e-3)
    np.testing.assert_allclose(ran(made.code, "main", x)[0], exact, rtol=2**-8)
