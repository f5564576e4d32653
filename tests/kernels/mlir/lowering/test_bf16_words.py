"""bf16 as words: the same numbers, and nothing left of the type."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from iree.compiler import ir

from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError
from tilewise.kernels.mlir.lowering.functions import compile_function, signature_of
from tilewise.kernels.mlir.lowering.jit import compile_ir
from tilewise.kernels.mlir.lowering.llvm_text import bf16_as_words
from tilewise.kernels.oracle.operands import Array, to_bf16, widened

WIDENS = """
define void @f(ptr %0, ptr %1) {
  %3 = load <4 x bfloat>, ptr %0, align 2
  %4 = fpext <4 x bfloat> %3 to <4 x float>
  %5 = extractelement <4 x bfloat> %3, i64 1
  %6 = fpext bfloat %5 to float
  %7 = insertelement <4 x float> %4, float %6, i64 0
  store <4 x float> %7, ptr %1, align 4
  store bfloat CONSTANT, ptr %0, align 2
  ret void
}
"""


@pytest.mark.parametrize("constant", ["0xR3FC0", "1.500000e+00"])
def test_numbers_are_widened_and_constants_are_their_words(constant: str) -> None:
    text = WIDENS.replace("CONSTANT", constant)
    assert "bfloat" not in bf16_as_words(text)
    compiled = compile_ir(text, "f")
    narrow = to_bf16(np.array([1.5, -2.25, np.inf, 1e-40], np.float32))
    wide = np.zeros(4, np.float32)
    exact = (narrow.astype(np.uint32) << 16).view(np.float32)
    words = np.array([narrow.ctypes.data, wide.ctypes.data], np.int64)
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(compiled.address)(words.ctypes.data, 0, 1)
    assert wide.tolist() == [exact[1], *exact[1:]]
    assert narrow[0] == 0x3FC0


ROUNDS = """
define void @f(ptr %0, ptr %1) {
  %3 = load <8 x float>, ptr %0, align 4
  %4 = fptrunc <8 x float> %3 to <8 x bfloat>
  store <8 x bfloat> %4, ptr %1, align 2
  %5 = getelementptr float, ptr %0, i64 8
  %6 = load float, ptr %5, align 4
  %7 = fptrunc float %6 to bfloat
  %8 = getelementptr bfloat, ptr %1, i64 8
  store bfloat %7, ptr %8, align 2
  ret void
}
"""


def test_numbers_are_rounded_to_the_nearest_and_of_two_to_the_even_one() -> None:
    assert "bfloat" not in bf16_as_words(ROUNDS)
    compiled = compile_ir(ROUNDS, "f")
    bits = [0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF, 0xFF800000, 0x80000001, 0x7F800001]
    wide = np.array([*bits, 0x3F80FFFF, 0x3F817FFF], np.uint32).view(np.float32)
    narrow = np.zeros(9, np.uint16)
    words = np.array([wide.ctypes.data, narrow.ctypes.data], np.int64)
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(compiled.address)(words.ctypes.data, 0, 1)
    quiet = 0x7FC0  # a signalling NaN becomes quiet
    assert narrow.tolist() == [
        0x3F80,
        0x3F82,
        0x3F81,
        0x7F80,
        0xFF80,
        0x8000,
        quiet,
        0x3F81,
        0x3F81,
    ]


def test_a_module_that_computes_in_bf16_is_refused() -> None:
    text = WIDENS.replace("CONSTANT", "1.0").replace(
        "ret void", "%8 = fadd bfloat %5, %5\n  ret void"
    )
    with pytest.raises(StageError, match="cannot compute in bf16: %8 = fadd bfloat %5, %5"):
        bf16_as_words(text)


POINTWISE = """
func.func @f(%a: memref<{n}xbf16>, %b: memref<{n}xbf16>) {{
  %k = arith.constant 1.5 : bf16
  linalg.generic {{indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>],
      iterator_types = ["parallel"]}} ins(%a : memref<{n}xbf16>) outs(%b : memref<{n}xbf16>) {{
  ^bb0(%x: bf16, %y: bf16):
    {body}
    linalg.yield %r : bf16
  }}
  return
}}"""


def computed(template: str, body: str, a: Array, b: Array) -> Array:
    """Words of the second argument after a call."""
    with ir.Context() as context, ir.Location.unknown():
        module = ir.Module.parse(template.format(body=body, n=a.size))
        function = compile_function(module, signature_of(module), Diagnostics(context))
    bound = function.bind([a, b])
    bound.call()
    return bound.results()[1].array


@pytest.mark.parametrize(
    ("body", "exact"),
    [
        ("%r = arith.addf %x, %y : bf16", lambda x, y: x + y),
        ("%r = arith.mulf %x, %k : bf16", lambda x, y: x * 1.5),
        ("%r = arith.divf %x, %y : bf16", lambda x, y: x / y),
        ("%r = arith.maximumf %x, %y : bf16", np.maximum),
        ("%r = math.exp %x : bf16", lambda x, y: np.exp(x)),
        ("%r = arith.negf %x : bf16", lambda x, y: -x),
        ("%c = arith.cmpf olt, %x, %y : bf16\n%r = arith.select %c, %x, %y : bf16", np.minimum),
        ("%i = arith.fptosi %y : bf16 to i32\n%r = arith.sitofp %i : i32 to bf16",
         lambda x, y: np.trunc(y) + 0),
        ("%d = arith.extf %x : bf16 to f64\n%r = arith.truncf %d : f64 to bf16", lambda x, y: x),
    ],
)  # fmt: skip
def test_each_operation_is_rounded_once(body: str, exact: Callable[..., Array]) -> None:
    random = np.random.default_rng(0)
    a, b = (to_bf16(random.uniform(-4, 4, 61).astype(np.float32)) for _ in range(2))
    wide = [widened(one, "bf16").astype(np.float32) for one in (a, b)]
    expected = exact(*wide).astype(np.float32).view(np.uint32)
    rounded = (expected + 0x7FFF + (expected >> 16 & 1) >> 16).astype(np.uint16)
    off = np.abs(computed(POINTWISE, body, a, b).astype(int) - rounded.astype(int))
    assert off.max() <= ("exp" in body), "numpy has another exponential"
