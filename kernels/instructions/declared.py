"""The instructions that Tilewise declares: plain ones of each vector unit, and dot products.

An instruction of another shape, such as a product of tiles, is a row here and an emitter beside
`tilewise.kernels.native.ir.dot_products`.
"""

from tilewise.kernels.instructions.declaration import Form, Instruction
from tilewise.kernels.instructions.meanings import fused, rounded, wrapping
from tilewise.kernels.problem.keys import DTYPES

UNITS = {"x86.avx512": 64, "x86.avx2": 32, "x86.sse2": 16, "arm.neon": 16}
"""Bytes of a vector of each unit, by the first part of an instruction's name."""

_WORDS_OF_B = frozenset({Form.OUTER_PRODUCT, Form.SKINNY})
_ASSEMBLY = {
    "fma.x86": r"vf(m|nm)(add|sub)(132|213|231)p[sdh]",
    "fma.arm": "fmla",
    "mul.x86": r"v?mulp[sd]|v?pmull[dwq]|v?pmaddwd|vpdpwssd",  # the last two of widened i8
    "mul.arm": "mla",
}
_FMA = frozenset({"fma"})  # NEON always has it


def _plain(name: str, dtype: str) -> tuple[Instruction, ...]:
    """Return the multiply-adds of single elements, of one name on each unit."""
    is_fused, is_float = name == "fma", DTYPES[dtype].is_float
    return tuple(
        Instruction(
            f"{unit}.{name}.{dtype}",
            *(1, size // DTYPES[dtype].bytes, 1),
            *(dtype, dtype, dtype),
            fused if is_fused else rounded if is_float else wrapping,
            intrinsic="llvm.fma.{}" if is_fused else "",
            arguments=("x", "y", "acc") if is_fused else ("x", "y"),
            assembly=_ASSEMBLY[f"{name}.{unit[:3]}"],
            features=_FMA if is_fused and unit != "arm.neon" else frozenset(),
            unless=_FMA if is_float and not is_fused else frozenset(),
        )
        for unit, size in UNITS.items()
        if is_fused or not (is_float and unit == "arm.neon")
    )


DECLARED = (
    Instruction(
        "x86.avx512.vdpbf16ps",
        *(1, 16, 2),
        *("bf16", "bf16", "f32"),
        fused,
        intrinsic="llvm.x86.avx512bf16.dpbf16ps.512",
        features=frozenset({"avx512bf16"}),
        forms=_WORDS_OF_B | {Form.SPLIT},
    ),
    Instruction(
        "x86.avx512.vpdpbusd",
        *(1, 16, 4),
        *("u8", "i8", "i32"),
        wrapping,
        intrinsic="llvm.x86.avx512.vpdpbusd.512",
        features=frozenset({"avx512vnni"}),
        forms=_WORDS_OF_B,
    ),
    Instruction(
        "x86.avx512.vpmaddwd",
        *(1, 16, 2),
        *("i8", "i8", "i32"),
        wrapping,
        intrinsic="llvm.x86.avx512.pmaddw.d.512",
        arguments=("x", "y"),
        assembly="vpmaddwd|vpdpwssd",  # which adds, too
        widened="i16",
        features=frozenset({"avx512bw"}),
        forms=frozenset({Form.SPLIT}),
        slots=2,
    ),
    *(*_plain("fma", "f32"), *_plain("fma", "f64")),
    *(*_plain("mul", "f32"), *_plain("mul", "f64"), *_plain("mul", "i32")),
)
