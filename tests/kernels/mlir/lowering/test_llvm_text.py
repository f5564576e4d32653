"""LLVM IR as text: bf16 as words, and constants that are read bit for bit."""

import ctypes
from collections.abc import Callable

import numpy as np
import pytest
from iree.compiler import ir
from iree.compiler.dialects import llvm

from tests.kernels.mlir.payloads import pointwise
from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError
from tilewise.kernels.mlir.lowering.functions import compile_function, signature_of
from tilewise.kernels.mlir.lowering.jit import RepeatedCall, compile_ir
from tilewise.kernels.mlir.lowering.llvm_text import bf16_as_words, readable_constants
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
    words = [0x3F80, 0x3F82, 0x3F81, 0x7F80, 0xFF80, 0x8000, quiet, 0x3F81, 0x3F81]
    assert narrow.tolist() == words


def test_a_module_that_computes_in_bf16_is_refused() -> None:
    text = WIDENS.replace("CONSTANT", "1.0").replace(
        "ret void", "%8 = fadd bfloat %5, %5\n  ret void"
    )
    with pytest.raises(StageError, match="cannot compute in bf16: %8 = fadd bfloat %5, %5"):
        bf16_as_words(text)


def computed(body: str, a: Array, b: Array) -> Array:
    """Words of a function of two arguments."""
    with ir.Context() as context, ir.Location.unknown():
        module = ir.Module.parse(pointwise(f"%k = arith.constant 1.5 : bf16\n{body}", "bf16"))
        function = compile_function(module, signature_of(module), Diagnostics(context))
    bound = function.bind([a, b])
    bound.call()
    return bound.results()[0].array


@pytest.mark.parametrize(("body", "exact"), [
    ("%r = arith.addf %a, %b : bf16", lambda x, y: x + y),
    ("%r = arith.mulf %a, %k : bf16", lambda x, y: x * 1.5),
    ("%r = arith.divf %a, %b : bf16", lambda x, y: x / y),
    ("%r = arith.maximumf %a, %b : bf16", np.maximum),
    ("%r = math.exp %a : bf16", lambda x, y: np.exp(x)),
    ("%r = arith.negf %a : bf16", lambda x, y: -x),
    ("%c = arith.cmpf olt, %a, %b : bf16\n%r = arith.select %c, %a, %b : bf16", np.minimum),
    ("%i = arith.fptosi %b : bf16 to i32\n%r = arith.sitofp %i : i32 to bf16",
     lambda x, y: np.trunc(y) + 0),
    ("%d = arith.extf %a : bf16 to f64\n%r = arith.truncf %d : f64 to bf16", lambda x, y: x),
])  # fmt: skip
def test_each_operation_is_rounded_once(body: str, exact: Callable[..., Array]) -> None:
    random = np.random.default_rng(0)
    a, b = (to_bf16(random.uniform(-4, 4, 61).astype(np.float32)) for _ in range(2))
    wide = [widened(one, "bf16").astype(np.float32) for one in (a, b)]
    expected = exact(*wide).astype(np.float32).view(np.uint32)
    rounded = (expected + 0x7FFF + (expected >> 16 & 1) >> 16).astype(np.uint16)
    off = np.abs(computed(body, a, b).astype(int) - rounded.astype(int))
    assert off.max() <= ("exp" in body), "numpy has another exponential"


# Infinities, quiet and signalling NaNs with and without payloads, the least subnormal, what six
# digits tell and what they do not, and numbers that decimals of the type round to.
WORDS = {
    "f32": [0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7F800001, 0xFF800001,
            0x7FFFFFFF, 0x00000001, 0x80000000, 0x00800000, 0xFF7FFFFF, 0xFF7FC99E, 0x3DCCCCCD,
            0x3EAAAAAB, 0x3F800000, 0x4B800001],
    "f64": [0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000, 0x7FF0000000000001,
            0x0000000000000001, 0x3FD5555555555555, 0x3FB999999999999A, 0x4008000000000000],
    "f16": [0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0x0001, 0x7BFF, 0x2E66, 0x3555, 0x3E00],
    "bf16": [0x7F80, 0xFF80, 0x7FC0, 0xFFC0, 0x7F81, 0x0001, 0x7F7F, 0x3DCD, 0x3EAB, 0x3FC0],
}  # fmt: skip
INTEGERS = {"f32": np.uint32, "f64": np.uint64, "f16": np.uint16, "bf16": np.uint16}


def stored(element: str, words: list[int], store: str) -> list[int]:
    """What a function leaves in memory that stores constants of these bits, one at a time."""
    lines = []
    for index, word in enumerate(words):
        lines.append(store.format(word=f"{word:#0{INTEGERS[element]().itemsize * 2 + 2}x}",
                                  t=element, i=index))  # fmt: skip
    body = "\n".join(lines)
    source = f"llvm.func @f(%a: !llvm.ptr, %p: !llvm.ptr, %o: i64, %n: i64, %s: i64) {{\n{body}\n"
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(f"{source}  llvm.return\n}}")
        text = llvm.translate_module_to_llvmir(module.operation)
    memory = np.zeros(2 * len(words), INTEGERS[element])
    RepeatedCall(compile_ir(text, "f"), [memory])()
    return [int(word) for word in memory]


@pytest.mark.parametrize("element", list(WORDS))
@pytest.mark.parametrize(("lanes", "kind", "value"), [
    (1, "{t}", "{word}"), (2, "vector<2x{t}>", "dense<{word}>"),
])  # fmt: skip
def test_a_constant_keeps_its_bits(element: str, lanes: int, kind: str, value: str) -> None:
    store = (
        f"  %c{{i}} = llvm.mlir.constant({value} : {kind}) : {kind}\n"
        f"  %p{{i}} = llvm.getelementptr %p[{{i}}] : (!llvm.ptr) -> !llvm.ptr, {kind}\n"
        f"  llvm.store %c{{i}}, %p{{i}} : {kind}, !llvm.ptr"
    )
    found, words = stored(element, WORDS[element], store), WORDS[element]
    assert found[: lanes * len(words)] == [word for word in words for _ in range(lanes)]


@pytest.mark.parametrize(("line", "read"), [
    ("  %5 = fmul float %4, 5.000000e-01", "  %5 = fmul float %4, 0x3FE0000000000000"),
    ("  %2 = phi half [ -inf, %0 ], [ %3, %1 ]", "  %2 = phi half [ 0xHFC00, %0 ], [ %3, %1 ]"),
    ("  %7 = fcmp olt float %6, -inf", "  %7 = fcmp olt float %6, 0xFFF0000000000000"),
    ("@g = constant [2 x float] [float f0x3EAAAAAB, float +nan(0x1)]",
     "@g = constant [2 x float] [float 0x3FD5555560000000, float 0x7FF8000020000000]"),
    ("  %9 = fptrunc double 1.000000e-01 to float",
     "  %9 = fptrunc double 0x3FB999999999999A to float"),
    ("  %8 = fadd <2 x bfloat> %7, splat (bfloat 1.0)",
     "  %8 = fadd <2 x bfloat> %7, splat (bfloat 0xR3F80)"),
    ("  %v1.0 = add i64 %0, 10", "  %v1.0 = add i64 %0, 10"),
    ('  store float %inf, ptr @"1.0"', '  store float %inf, ptr @"1.0"'),
    ("  store float 0x3FE0000000000000, ptr %0", "  store float 0x3FE0000000000000, ptr %0"),
    ('source_filename = "1.0"', 'source_filename = "1.0"'),
])  # fmt: skip
def test_constants_are_found_where_they_stand(line: str, read: str) -> None:
    assert readable_constants(line) == read
