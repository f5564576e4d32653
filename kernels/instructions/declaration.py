"""`Instruction`: the declaration of one instruction that multiplies and adds.

A declaration has all that differs between instructions: the shape of what one computes, element
types, what it means in NumPy, the LLVM intrinsic, what it needs of a processor, what it costs, and
which forms of micro-kernel can use it. Exo's `@instr` and tinygrad's `TensorCore` are the model.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from tilewise.kernels.problem.keys import BF16X3, DTYPES, STORED
from tilewise.kernels.problem.products import fused, in_parts, rounded, wrapping
from tilewise.kernels.target.cores import Core

if TYPE_CHECKING:
    from tilewise.kernels.problem.keys import Array

Meaning = Callable[["Array", "Array", "Array"], "Array"]
"""C [.., rows, cols], A [.., rows, k] and B [.., k, cols] to the new C."""

UNSIGNED_OFFSET = 128
"""What makes an i8 a u8: both have it as their highest bit."""


class Form(Enum):
    """A form of micro-kernel, by how it feeds the instruction.

    Outer products and skinny GEMMs multiply a word of A, in all lanes, with a vector of B.
    A split reduction multiplies two vectors along the reduction, as they are stored. A depthwise
    tile multiplies vectors of channels.
    """

    OUTER_PRODUCT = "outer product"
    SKINNY = "skinny"
    SPLIT = "split"
    DEPTHWISE = "depthwise"
    TILES = "tiles"


@dataclass(frozen=True)
class Instruction:
    """One instruction; C[rows, cols] += A[rows, k] * B[k, cols].

    `k` elements of the reduction lie side by side in the registers of both factors: they are the
    word that panels are made of. Where `a` is u8 and `b` is i8, signed elements of A can be packed
    with 128 added, and C corrected by sums over B; a skinny GEMM exchanges the factors.

    Attributes:
        name: vector unit and mnemonic, such as `x86.avx512.vdpbf16ps`, as schedules have it.
        rows, cols: of C.
        k: elements that are summed into each element of C.
        a, b, c: element types as they are multiplied and accumulated.
        meaning: in NumPy, on arrays of a type that holds the elements exactly.
        intrinsic: LLVM's, with `{}` for the type of the accumulators; empty for LLVM's own product.
        arguments: of the intrinsic, in their order. Without `acc` the product is added by a second
            instruction.
        assembly: a pattern of what LLVM prints for it; empty for the mnemonic of its name.
        widened: the integer type to which factors are extended in registers; empty for none.
        features: LLVM's names of the extensions that it needs.
        unless: of those that have a better one for the same.
        forms: that can use it.
        slots: of a multiply-add unit that it takes, unless the table of cores has another number.
        words: words of the reduction that one sums; more than one for matrix tiles.
        accuracy: the accuracy that a problem has to ask for; empty for any.
        parts: pairs of parts of A and B, high (0) or low (1), whose products are summed.
        pairs: the type in which it sums neighbouring products, two lanes for each of C; empty
            where it sums all of a word in C's.
    """

    name: str
    rows: int
    cols: int
    k: int
    a: str
    b: str
    c: str
    meaning: Meaning = field(repr=False)
    intrinsic: str = ""
    arguments: tuple[str, ...] = ("acc", "x", "y")
    assembly: str = field(default="", repr=False)
    widened: str = ""
    features: frozenset[str] = field(default=frozenset(), repr=False)
    unless: frozenset[str] = field(default=frozenset(), repr=False)
    forms: frozenset[Form] = field(default=frozenset(Form) - {Form.TILES}, repr=False)
    slots: int = field(default=1, repr=False)
    words: int = 1
    accuracy: str = ""
    parts: tuple[tuple[int, int], ...] = ((0, 0),)
    pairs: str = ""

    @property
    def unit(self) -> str:
        """Return the vector unit, such as `x86.avx512`."""
        return ".".join(self.name.split(".")[:2])

    @property
    def mnemonic(self) -> str:
        """Return the name within the unit."""
        return self.name.removeprefix(f"{self.unit}.")

    def is_printed_as(self, mnemonic: str) -> bool:
        """Return whether it has a mnemonic in assembly."""
        return re.fullmatch(self.assembly or self.mnemonic, mnemonic) is not None

    @property
    def adds(self) -> bool:
        """Return whether it also adds."""
        return "acc" in self.arguments

    def slots_on(self, core: Core) -> int:
        """Return the slots of a multiply-add unit that it takes on a core."""
        return core.slots.get(self.mnemonic, self.slots)

    @property
    def products(self) -> int:
        """Return the products of a column of C that one sums."""
        return self.rows * self.k * self.words

    def offset(self, a: str) -> int:
        """Return what is added to elements of A that are stored in a type."""
        return UNSIGNED_OFFSET * ((self.a, a) == ("u8", "i8") and Form.TILES not in self.forms)

    def takes(self, factors: str) -> bool:
        """Return whether it multiplies `FACTORS`, as they are, widened, or A made unsigned."""
        a, b = (factors.split("*") * 2)[:2]
        sums = STORED[a].accumulator
        is_small = (self.a, a) == ("u8", "u4")
        fits = b == self.b and (a == self.a or is_small or self.offset(a) > 0)
        is_widened = self.b == sums or (self.b == "i16" and {a, b} <= {"i8", "u8", "u4"})
        return self.c == sums and (fits or is_widened)


TILE_UNIT = "x86.amx"
UNITS = {TILE_UNIT: 64, "x86.avx512": 64, "x86.avx2": 32, "x86.sse2": 16, "arm.neon": 16}
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
        if unit != TILE_UNIT and (is_fused or not (is_float and unit == "arm.neon"))
    )


def _tiles(mnemonic: str, a: str, b: str, c: str, k: int, meaning: Meaning) -> Instruction:
    """Return a product of matrix tiles: 16 rows of 64 bytes each; one takes 16 cycles."""
    feature = "amx-int8" if c == "i32" else f"amx-{mnemonic[3:-2]}"
    return Instruction(
        f"{TILE_UNIT}.{mnemonic}",
        *(16, 16, k),
        *(a, b, c),
        meaning,
        intrinsic=f"llvm.x86.{mnemonic}",
        features=frozenset({"amx-tile", feature}),
        forms=frozenset({Form.TILES}),
        slots=32,
        words=16,
    )


_TDPBF16PS = _tiles("tdpbf16ps", "bf16", "bf16", "f32", 2, fused)
_BF16X3 = replace(
    _TDPBF16PS, name=f"{TILE_UNIT}.{BF16X3}", k=32, words=1, a="f32", b="f32", slots=96,
    meaning=in_parts, assembly="tdpbf16ps", accuracy=BF16X3, parts=((0, 0), (1, 0), (0, 1)),
    features=_TDPBF16PS.features | {"avx512bf16"},
)  # fmt: skip


def _on_avx2(one: Instruction, intrinsic: str, feature: str = "avx2") -> Instruction:
    """Return the same of half as many lanes."""
    name, features = f"x86.avx2.{one.mnemonic}", frozenset({feature})
    return replace(one, name=name, cols=8, intrinsic=intrinsic, features=features)


_VPDPBUSD = Instruction(
    "x86.avx512.vpdpbusd",
    *(1, 16, 4),
    *("u8", "i8", "i32"),
    wrapping,
    intrinsic="llvm.x86.avx512.vpdpbusd.512",
    features=frozenset({"avx512vnni"}),
    forms=_WORDS_OF_B,
)
_SWAPPED = replace(
    _VPDPBUSD, name="x86.avx512.vpdpbusd.i8.u8", a="i8", b="u8", assembly="vpdpbusd",
    arguments=("acc", "y", "x"),
)  # fmt: skip
_VPMADDWD = Instruction(
    "x86.avx512.vpmaddwd.i16",
    *(1, 16, 2),
    *("i16", "i16", "i32"),
    wrapping,
    intrinsic="llvm.x86.avx512.pmaddw.d.512",
    arguments=("x", "y"),
    assembly="vpmaddwd|vpdpwssd",  # which adds, too
    features=frozenset({"avx512bw"}),
    forms=_WORDS_OF_B,
)
_WIDENED = replace(
    _VPMADDWD, name="x86.avx512.vpmaddwd", a="i8", b="i8", widened="i16", slots=2,
    forms=frozenset({Form.SPLIT}),
)  # fmt: skip
_VPMADDUBSW = replace(  # larger factors than u4 saturate
    _VPMADDWD, name="x86.avx512.vpmaddubsw", k=4, a="u4", b="i8", pairs="i16",
    intrinsic="llvm.x86.avx512.pmaddubs.w.512", assembly="vpmaddubsw",
    unless=frozenset({"avx512vnni", "avxvnni"}), forms=frozenset({Form.OUTER_PRODUCT}),
)  # fmt: skip

DECLARED = (
    _TDPBF16PS,
    _BF16X3,
    _tiles("tdpfp16ps", "f16", "f16", "f32", 2, fused),
    _tiles("tdpbssd", "i8", "i8", "i32", 4, wrapping),
    _tiles("tdpbsud", "i8", "u8", "i32", 4, wrapping),
    _tiles("tdpbusd", "u8", "i8", "i32", 4, wrapping),
    _tiles("tdpbuud", "u8", "u8", "i32", 4, wrapping),
    Instruction(
        "x86.avx512.vdpbf16ps",
        *(1, 16, 2),
        *("bf16", "bf16", "f32"),
        fused,
        intrinsic="llvm.x86.avx512bf16.dpbf16ps.512",
        features=frozenset({"avx512bf16"}),
        forms=_WORDS_OF_B | {Form.SPLIT},
    ),
    _VPDPBUSD,
    _SWAPPED,
    _VPMADDWD,
    _WIDENED,
    _VPMADDUBSW,
    _on_avx2(_VPMADDUBSW, "llvm.x86.avx2.pmadd.ub.sw"),
    *(_on_avx2(one, "llvm.x86.avx512.vpdpbusd.256", "avxvnni") for one in (_VPDPBUSD, _SWAPPED)),
    *(_on_avx2(one, "llvm.x86.avx2.pmadd.wd") for one in (_VPMADDWD, _WIDENED)),
    *(*_plain("fma", "f32"), *_plain("fma", "f64")),
    *(*_plain("mul", "f32"), *_plain("mul", "f64"), *_plain("mul", "i32")),
)
