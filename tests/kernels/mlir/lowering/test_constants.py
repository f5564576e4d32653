"""Constants of LLVM IR are read bit for bit, however MLIR's newer LLVM prints them."""

import numpy as np
import pytest
from iree.compiler import ir
from iree.compiler.dialects import llvm

from tilewise.kernels.mlir.lowering.jit import RepeatedCall, compile_ir

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
@pytest.mark.parametrize("count", [1, 2])
def test_constants_and_vectors_of_one_constant_keep_their_bits(element: str, count: int) -> None:
    kind, value = ("{t}", "{word}") if count == 1 else ("vector<2x{t}>", "dense<{word}>")
    store = (
        f"  %c{{i}} = llvm.mlir.constant({value} : {kind}) : {kind}\n"
        f"  %p{{i}} = llvm.getelementptr %p[{{i}}] : (!llvm.ptr) -> !llvm.ptr, {kind}\n"
        f"  llvm.store %c{{i}}, %p{{i}} : {kind}, !llvm.ptr"
    )
    found = stored(element, WORDS[element], store)
    assert found[: count * len(WORDS[element])] == [
        word for word in WORDS[element] for _ in range(count)
    ]
