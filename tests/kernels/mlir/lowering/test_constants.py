"""Constants of LLVM IR are read bit for bit, however MLIR's newer LLVM prints them."""

import numpy as np
import pytest
from iree.compiler import ir
from iree.compiler.dialects import llvm

from tilewise.kernels.mlir.lowering.jit import RepeatedCall, compile_ir
from tilewise.kernels.mlir.lowering.llvm_text import readable_constants

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
def test_a_scalar_constant_keeps_its_bits(element: str) -> None:
    store = (
        "  %c{i} = llvm.mlir.constant({word} : {t}) : {t}\n"
        "  %p{i} = llvm.getelementptr %p[{i}] : (!llvm.ptr) -> !llvm.ptr, {t}\n"
        "  llvm.store %c{i}, %p{i} : {t}, !llvm.ptr"
    )
    found = stored(element, WORDS[element], store)
    assert found[: len(WORDS[element])] == WORDS[element]


@pytest.mark.parametrize("element", list(WORDS))
def test_a_vector_of_one_constant_keeps_its_bits(element: str) -> None:
    store = (
        "  %c{i} = llvm.mlir.constant(dense<{word}> : vector<2x{t}>) : vector<2x{t}>\n"
        "  %p{i} = llvm.getelementptr %p[{i}] : (!llvm.ptr) -> !llvm.ptr, vector<2x{t}>\n"
        "  llvm.store %c{i}, %p{i} : vector<2x{t}>, !llvm.ptr"
    )
    found = stored(element, WORDS[element], store)
    assert found == [word for word in WORDS[element] for _ in range(2)]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("  %5 = fmul float %4, 5.000000e-01", "  %5 = fmul float %4, 0x3FE0000000000000"),
        (
            "  %2 = phi half [ -inf, %0 ], [ %3, %1 ]",
            "  %2 = phi half [ 0xHFC00, %0 ], [ %3, %1 ]",
        ),
        ("  %7 = fcmp olt float %6, -inf", "  %7 = fcmp olt float %6, 0xFFF0000000000000"),
        (
            "@g = constant [2 x float] [float f0x3EAAAAAB, float +nan(0x1)]",
            "@g = constant [2 x float] [float 0x3FD5555560000000, float 0x7FF8000020000000]",
        ),
        (
            "  %9 = fptrunc double 1.000000e-01 to float",
            "  %9 = fptrunc double 0x3FB999999999999A to float",
        ),
        (
            "  %8 = fadd <2 x bfloat> %7, splat (bfloat 1.0)",
            "  %8 = fadd <2 x bfloat> %7, splat (bfloat 0xR3F80)",
        ),
        ("  %v1.0 = add i64 %0, 10", "  %v1.0 = add i64 %0, 10"),
        ('  store float %inf, ptr @"1.0"', '  store float %inf, ptr @"1.0"'),
        ("  store float 0x3FE0000000000000, ptr %0", "  store float 0x3FE0000000000000, ptr %0"),
        ('source_filename = "1.0"', 'source_filename = "1.0"'),
    ],
)
def test_constants_are_found_where_they_stand(line: str, read: str) -> None:
    assert readable_constants(line) == read
