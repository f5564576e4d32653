"""Instructions that multiply and add: which there are for an element type, and which one to use.

bf16 and i8 can be multiplied in several ways: by a dot product of neighbouring elements, or widened
and multiplied as f32 or i32. Which is faster depends on the processor, not on its features:
`vdpbf16ps` has twice the rate of f32 FMA on Zen 5, and half of it on Emerald Rapids. So the choice
is made by rates that were measured on the machine (`Target.rates`), or, where there are none, by
the table in `tilewise.kernels.target.cores`. A schedule records the choice as a step
(`tilewise.kernels.schedule.Instruction`), so that its kernel is the same on every machine.
"""

from typing import NamedTuple

from tilewise.kernels.problem.dtypes import DTYPES
from tilewise.kernels.target.cores import Core, core_of
from tilewise.kernels.target.model import Target

VDPBF16PS = "x86.avx512.vdpbf16ps"
VPDPBUSD = "x86.avx512.vpdpbusd"
VPMADDWD = "x86.avx512.vpmaddwd"
_AVX512, _AVX2, _SSE2, _NEON = _UNITS = ("x86.avx512", "x86.avx2", "x86.sse2", "arm.neon")
_X86_UNITS = {64: _AVX512, 32: _AVX2, 16: _SSE2}


class Dot(NamedTuple):
    """A dot product of neighbouring elements, on whole AVX-512 registers.

    Attributes:
        name: of the instruction.
        dtype: of its factors.
        feature: LLVM's name of the extension that has it.
        depth: elements that it sums in a lane.
        splits: the reductions that use it: split ones, others, or both.
    """

    name: str
    dtype: str
    feature: str
    depth: int
    splits: tuple[bool, ...]

    def slots(self, core: Core) -> int:
        """Return how many multiply-adds it takes the time of."""
        return {VDPBF16PS: core.bf16_dot, VPMADDWD: 2}.get(self.name, 1)


DOTS = {
    dot.name: dot
    for dot in (
        Dot(VDPBF16PS, "bf16", "avx512bf16", 2, (False, True)),
        Dot(VPDPBUSD, "i8", "avx512vnni", 4, (False,)),
        Dot(VPMADDWD, "i8", "avx512bw", 2, (True,)),
    )
}
WITH_CHOICE = frozenset(dot.dtype for dot in DOTS.values())
"""The types that some processor has several instructions for."""


def known(dtype: str, split: bool) -> tuple[str, ...]:
    """Return the instructions that some target has for a type and a form of the reduction."""
    forms = dict.fromkeys(_plain(dtype, has_fma) for has_fma in (True, False))
    single = (f"{unit}.{form}" for form in forms for unit in _UNITS)
    return (*(dot.name for dot in _dots(dtype, split)), *single)


def usable(dtype: str, target: Target, split: bool = False) -> tuple[str, ...]:
    """Return the instructions that a target has for a type, that with the most products first."""
    is_whole = target.vector_bytes == max(_X86_UNITS)
    dots = [dot.name for dot in _dots(dtype, split) if is_whole and dot.feature in target.features]
    return (*dots, plain(dtype, target))


def plain(dtype: str, target: Target) -> str:
    """Return the instruction that multiplies and adds single elements, widened if need be."""
    return f"{_unit(target)}.{_plain(dtype, target.has_fma)}"


def lacks_rates(dtype: str, target: Target) -> bool:
    """Return whether a target has several instructions for a type that were not measured yet."""
    forms = [usable(dtype, target, split) for split in (False, True)]
    return any(len(names) > 1 and not dict(target.rates).keys() >= set(names) for names in forms)


def chosen(dtype: str, target: Target, split: bool = False) -> str:
    """Return the fastest instruction for a type: by measured rates, else by the table of cores.

    Of equally fast ones, the one with the most products is chosen: its factors take less memory.
    """
    names, measured = usable(dtype, target, split), dict(target.rates)
    if measured.keys() >= set(names):
        return max(names, key=lambda name: measured[name])
    core, _ = core_of(target.cpu)
    tabled = {name: dot.depth / dot.slots(core) for name, dot in DOTS.items()}
    of_plain = 1.0 if DTYPES[dtype].is_float else 1 / (core.integer_multiply + 1)
    return max(names, key=lambda name: tabled.get(name, of_plain))


def _dots(dtype: str, split: bool) -> list[Dot]:
    return [dot for dot in DOTS.values() if dot.dtype == dtype and split in dot.splits]


def _plain(dtype: str, has_fma: bool) -> str:
    """The multiply-add of the accumulator's type, such as `fma.f32` or `mul.i32`."""
    fuses = has_fma and DTYPES[dtype].is_float
    return f"{'fma' if fuses else 'mul'}.{DTYPES[dtype].accumulator}"


def _unit(target: Target) -> str:
    is_arm = bool(target.features & {"neon", "fp-armv8"})
    return _NEON if is_arm else _X86_UNITS[target.vector_bytes]


NAMES = tuple(
    sorted({op for dtype in WITH_CHOICE for split in (False, True) for op in known(dtype, split)})
)
"""The instructions that a schedule can name."""
