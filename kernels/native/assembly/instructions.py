"""Reading assembly as LLVM prints it: instructions, and what a loop of them asks of a core.

x86 in AT&T order: the destination is the last operand.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tilewise.kernels.instructions import Instruction

REGISTER_BYTES = {"x": 16, "y": 32, "z": 64}

_VECTOR = re.compile(r"%([xyz])mm\d+")
_SPLIT = re.compile(r",\s*(?![^(]*\))")
_ADD = re.compile(r"v?addp[sdh]|v?padd[dwq]")
_NO_ACCESS = ("lea", "nop", "prefetch")
_ONLY_READS = ("cmp", "test", "vucomis", "ucomis", "bt")


@dataclass(frozen=True)
class AsmLine:
    """One instruction: its mnemonic and its operands as text."""

    name: str
    operands: tuple[str, ...]

    @property
    def memory(self) -> str | None:
        """The operand that is an address, whether or not it is accessed."""
        return next((o for o in self.operands if "(" in o), None)

    @property
    def vector_bytes(self) -> int:
        """Width of the widest vector register; 0 without one."""
        widths = [REGISTER_BYTES[w] for o in self.operands for w in _VECTOR.findall(o)]
        return max(widths, default=0)

    @property
    def writes_memory(self) -> bool:
        """Whether the destination is an address."""
        return (
            self.memory is not None
            and "(" in self.operands[-1]
            and not self.name.startswith((*_NO_ACCESS, *_ONLY_READS))
        )

    @property
    def reads_memory(self) -> bool:
        """Whether an operand comes from an address; only moves write one unread."""
        if self.memory is None or self.name.startswith(_NO_ACCESS):
            return False
        return not (self.writes_memory and re.match(r"v?p?(mov|set|extr)", self.name))

    @property
    def is_broadcast(self) -> bool:
        """Whether it puts one element in every lane, alone or folded into arithmetic."""
        return "broadcast" in self.name or "{1to" in self.operands[0]


@dataclass(frozen=True)
class Counts:
    """What one iteration of a loop is made of.

    Attributes:
        multiply_adds: vector multiply-adds; a multiplication with its addition is one.
        vector_loads: whole vectors from memory, folded into arithmetic or not.
        broadcasts: one element to every lane.
        other_loads: scalars from memory, and prefetches, which take the same units.
        stores: writes to memory.
        stack_references: accesses to the stack.
        vector_spills: those of them that move vectors.
        instructions: all, with the jump.
        vector_bytes: width of a multiply-add.
        chain: multiply-adds of an iteration that wait for one another.
    """

    multiply_adds: int
    vector_loads: int
    broadcasts: int
    other_loads: int
    stores: int
    stack_references: int
    vector_spills: int
    instructions: int
    vector_bytes: int
    chain: int


def parse(line: str) -> AsmLine | None:
    """An instruction of LLVM's assembly; None for labels, directives and comments."""
    text = re.split(r"\s#|//|^#|\s;", line.strip())[0].strip()
    if not text or text.startswith(".") or text.endswith(":"):
        return None
    name, _, rest = text.partition("\t")
    if not rest:
        name, _, rest = text.partition(" ")
    return AsmLine(name, tuple(_SPLIT.split(rest.strip())) if rest.strip() else ())


def count_x86(loop: Sequence[AsmLine], one: Instruction, uses_frame_pointer: bool) -> Counts:
    """Count a loop.

    Args:
        loop: its instructions.
        one: the instruction that multiplies.
        uses_frame_pointer: whether rbp points into the stack; else it is one register of many.
    """
    stack = re.compile(r"\(%r(sp|bp)\b" if uses_frame_pointer else r"\(%rsp\b")
    accessing = [i for i in loop if i.reads_memory or i.writes_memory]
    reads = [i for i in accessing if i.reads_memory]
    spills = [i for i in accessing if stack.search(i.memory or "")]
    multiply_adds = [i for i in loop if one.is_printed_as(i.name)]
    vector_loads = [i for i in reads if i.vector_bytes and not i.is_broadcast]
    prefetches = sum(i.name.startswith("prefetch") for i in loop)
    # LLVM may have merged the additions of products.
    sums = [i for i in loop if _ADD.fullmatch(i.name) and not one.adds] or multiply_adds
    return Counts(
        multiply_adds=len(multiply_adds),
        vector_loads=len(vector_loads),
        broadcasts=sum(i.is_broadcast for i in loop if i.operands),
        other_loads=sum(not i.vector_bytes for i in reads) + prefetches,
        stores=sum(i.writes_memory for i in accessing),
        stack_references=len(spills),
        vector_spills=sum(i.vector_bytes > 0 for i in spills),
        instructions=len(loop),
        vector_bytes=max((i.vector_bytes for i in multiply_adds), default=0),
        chain=max(Counter(i.operands[-1] for i in sums).values(), default=0),
    )


def count_other(loop: Sequence[AsmLine], one: Instruction) -> Counts:
    """What can be told of a loop in AArch64 assembly; the rest is 0."""
    texts = [", ".join(i.operands) for i in loop]
    loads = [i for i in loop if re.match(r"ld(r|p|ur|1)\b", i.name)]
    stack = [t for t in texts if re.search(r"\[(sp|x29)\b", t)]
    return Counts(
        multiply_adds=sum(one.is_printed_as(i.name) for i in loop),
        vector_loads=sum(bool(re.match(r"[qv{]", i.operands[0])) for i in loads),
        broadcasts=sum(i.name in ("dup", "ld1r") for i in loop),
        other_loads=sum(not re.match(r"[qv{]", i.operands[0]) for i in loads),
        stores=sum(bool(re.match(r"st(r|p|ur|1)", i.name)) for i in loop),
        stack_references=len(stack),
        vector_spills=sum(bool(re.match(r"[qv{]", t)) for t in stack),
        instructions=len(loop),
        vector_bytes=16,
        chain=0,
    )
