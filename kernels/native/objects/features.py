"""What an object's code may use of an x86-64 processor, and the function that looks for it.

An object is compiled for x86-64 and the extensions of `CHECKED` that its target has, not for the
target itself: so LLVM uses nothing that `supported_text` does not look for, and another maker's
processor with the same extensions runs it.

CPUID's leaves and bits: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2A,
and volume 1, 13.3 and 15.2, on what the operating system has to save (XCR0).
"""

import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal, NamedTuple

from tilewise.kernels.native.export.templates import filled

TEMPLATES = Path(__file__).with_name("templates")
Register = Literal["eax", "ebx", "ecx", "edx"]
REGISTERS: tuple[Register, ...] = ("eax", "ebx", "ecx", "edx")
BASIC, STRUCTURED, EXTENDED = 1, 7, 0x80000001
OSXSAVE = 1 << 27  # of ecx of leaf 1
XCR0_AVX, XCR0_AVX512, XCR0_TILES = 0x6, 0xE6, 0x60000


class Bit(NamedTuple):
    """Where CPUID says whether there is an extension."""

    leaf: int
    subleaf: int
    register: Register
    bit: int


CHECKED: dict[str, Bit] = {
    "sse3": Bit(BASIC, 0, "ecx", 0),
    "ssse3": Bit(BASIC, 0, "ecx", 9),
    "fma": Bit(BASIC, 0, "ecx", 12),
    "sse4.1": Bit(BASIC, 0, "ecx", 19),
    "sse4.2": Bit(BASIC, 0, "ecx", 20),
    "movbe": Bit(BASIC, 0, "ecx", 22),
    "popcnt": Bit(BASIC, 0, "ecx", 23),
    "avx": Bit(BASIC, 0, "ecx", 28),
    "f16c": Bit(BASIC, 0, "ecx", 29),
    "bmi": Bit(STRUCTURED, 0, "ebx", 3),
    "avx2": Bit(STRUCTURED, 0, "ebx", 5),
    "bmi2": Bit(STRUCTURED, 0, "ebx", 8),
    "avx512f": Bit(STRUCTURED, 0, "ebx", 16),
    "avx512dq": Bit(STRUCTURED, 0, "ebx", 17),
    "avx512cd": Bit(STRUCTURED, 0, "ebx", 28),
    "avx512bw": Bit(STRUCTURED, 0, "ebx", 30),
    "avx512vl": Bit(STRUCTURED, 0, "ebx", 31),
    "avx512vnni": Bit(STRUCTURED, 0, "ecx", 11),
    "avxvnni": Bit(STRUCTURED, 1, "eax", 4),
    "avx512bf16": Bit(STRUCTURED, 1, "eax", 5),
    "amx-fp16": Bit(STRUCTURED, 1, "eax", 21),
    "amx-bf16": Bit(STRUCTURED, 0, "edx", 22),
    "amx-tile": Bit(STRUCTURED, 0, "edx", 24),
    "amx-int8": Bit(STRUCTURED, 0, "edx", 25),
    "lzcnt": Bit(EXTENDED, 0, "ecx", 5),
}
"""The extensions that objects may use, by LLVM's names: x86-64-v4, and products of 16 bits and i8.

Those of tiles are used on Linux alone, which gives tile registers to processes that ask for them.
"""

BY_INTRINSIC = {
    "avxvnni": r"llvm.x86.avx512.vpdp\w+.256",
    "avx512vnni": r"llvm.x86.avx512.vpdp\w+.512",
    "avx512bf16": "llvm.x86.avx512bf16",
    "amx-tile": "llvm.x86.tile",
    "amx-bf16": "llvm.x86.tdpbf16ps",
    "amx-fp16": "llvm.x86.tdpfp16ps",
    "amx-int8": "llvm.x86.tdpb[su]",
}
"""Extensions that LLVM uses only for intrinsics, and a pattern that begins the names of those."""

IMPLIED = {
    "ssse3": ("sse3",), "sse4.1": ("ssse3",), "sse4.2": ("sse4.1",), "avx": ("sse4.2",),
    "fma": ("avx",), "f16c": ("avx",), "avx2": ("avx",), "avx512f": ("avx2", "fma", "f16c"),
    "avx512bw": ("avx512f",), "avx512cd": ("avx512f",), "avx512dq": ("avx512f",),
    "avx512vl": ("avx512f",), "avx512vnni": ("avx512f",), "avx512bf16": ("avx512bw",),
    "amx-bf16": ("amx-tile",), "amx-fp16": ("amx-tile",), "amx-int8": ("amx-tile",),
    "avxvnni": ("avx2",),
}  # fmt: skip
"""What LLVM takes to be there wherever an extension is."""


def used_features(of_target: Collection[str], text: str) -> tuple[str, ...]:
    """Return the extensions that the code of `text`, LLVM IR, may use on a target that has some."""
    found = {
        name
        for name in CHECKED
        if name in of_target and (name not in BY_INTRINSIC or re.search(BY_INTRINSIC[name], text))
    }
    while more := {other for name in found for other in IMPLIED.get(name, ())} - found:
        found |= more
    return tuple(name for name in CHECKED if name in found)


def attributes(features: Collection[str]) -> str:
    """Return LLVM's attributes of a function: what its code may use.

    Nothing tells LLVM for which processor to order instructions. Tuning for Zen 5 costs a skinny
    GEMM of bf16 18% of its speed, and 7% more where a compiler runs its passes over the bitcode.
    """
    used = ",".join(f"+{name}" for name in features)
    parts = ["nounwind", '"no-builtins"', '"target-cpu"="x86-64"']
    return " ".join(parts + ([f'"target-features"="{used}"'] if used else []))


def supported_text(name: str, features: Collection[str]) -> str:
    """Return LLVM IR of `int NAME_supported(void)`, 1 where processor and system have all."""
    needed: dict[tuple[int, int], dict[Register, int]] = {}
    for feature in features:
        at = CHECKED[feature]
        masks = needed.setdefault((at.leaf, at.subleaf), {})
        masks[at.register] = masks.get(at.register, 0) | 1 << at.bit
    saved = XCR0_AVX512 if "avx512f" in features else XCR0_AVX if "avx" in features else 0
    has_tiles = "amx-tile" in features
    saved |= XCR0_TILES if has_tiles else 0
    if saved:
        masks = needed.setdefault((BASIC, 0), {})
        masks["ecx"] = masks.get("ecx", 0) | OSXSAVE
    order = sorted(needed)
    steps = [_leaf_text(i, leaf, needed[leaf]) for i, leaf in enumerate(order)]
    if saved:  # after leaf 1, which says whether XCR0 can be read
        steps.append(filled(TEMPLATES / "saved.ll", mask=saved, at=len(order)))
    if has_tiles:
        steps.append(filled(TEMPLATES / "permitted.ll", at=len(order) + 1))
    labels = [*(f"look{i}" for i in range(len(steps))), "yes"]
    body = "".join(
        step.replace("%NEXT", f"%{label}") for step, label in zip(steps, labels[1:], strict=True)
    )
    plain = attributes(())
    return filled(
        TEMPLATES / "supported.ll", name=name, attributes=plain, first=labels[0], body=body
    )


def _leaf_text(at: int, leaf: tuple[int, int], masks: dict[Register, int]) -> str:
    """A look at one leaf, which has to be there, and its bits, which have to be set."""
    number, subleaf = leaf
    tests = "".join(
        f"  %{r}{at} = extractvalue {{i32, i32, i32, i32}} %leaf{at}, {REGISTERS.index(r)}\n"
        f"  %lacks.{r}{at} = xor i32 %{r}{at}, -1\n"
        f"  %missed.{r}{at} = and i32 %lacks.{r}{at}, {mask}\n"
        for r, mask in masks.items()
    )
    missed = [f"%missed.{register}{at}" for register in masks]
    total = missed[0]
    for i, one in enumerate(missed[1:]):
        tests += f"  %any{at}.{i} = or i32 {total}, {one}\n"
        total = f"%any{at}.{i}"
    return filled(
        TEMPLATES / "leaf.ll",
        at=at,
        leaf=number,
        subleaf=subleaf,
        base=number & 0x80000000,
        tests=tests,
        missed=total,
    )
