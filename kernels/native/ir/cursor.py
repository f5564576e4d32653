"""Where instructions are written: at the end of a block, and where a function goes on behind it."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Self

from llvmlite import ir

from tilewise.kernels.native.ir.values import Phi, Written, typed


class Cursor:
    """Writes lines at the end of a block; another for the same function is `beside` it.

    Attributes:
        block: which; `position_at_end` goes on at another of the same function.
    """

    def __init__(self, block: ir.Block, names: Iterator[int] | None = None) -> None:
        self.block = block
        self._names = count() if names is None else names

    def beside(self, block: ir.Block) -> Self:
        """A second one for the function, which knows the names of the first."""
        return type(self)(block, self._names)

    @property
    def module(self) -> ir.Module:
        """What the function belongs to."""
        return self.block.function.module

    def append_basic_block(self, name: str = "") -> ir.Block:
        """A new block of the function."""
        return self.block.function.append_basic_block(name)

    def position_at_end(self, block: ir.Block) -> None:
        """Go on at the end of `block`."""
        self.block = block

    def phi(self, kind: Any) -> Phi:
        """A value that is told later, by the blocks that lead here."""
        made = Phi(kind, f"%v{next(self._names)}")
        self.block.instructions.append(made)
        return made

    def branch(self, to: ir.Block) -> None:
        """Go on at a block."""
        self._end(f"br {typed(to)}")

    def cbranch(self, condition: Any, yes: ir.Block, no: ir.Block) -> None:
        """Go on at one of two blocks."""
        self._end(f"br {typed(condition)}, {typed(yes)}, {typed(no)}")

    def ret(self, value: Any) -> None:
        """Return a value."""
        self._end(f"ret {typed(value)}")

    def ret_void(self) -> None:
        """Return."""
        self._end("ret void")

    @contextmanager
    def if_then(self, condition: Any) -> Iterator[None]:
        """What is written within happens under the condition."""
        then, after = self.append_basic_block("if"), self.append_basic_block("endif")
        self.cbranch(condition, then, after)
        self.position_at_end(then)
        yield
        if not self.block.is_terminated:
            self.branch(after)
        self.position_at_end(after)

    def write(self, kind: Any, text: str, base: Any = None, more: int = 0) -> Written:
        """An instruction that gives a value; of a sum with an integer, its parts."""
        reference = f"%v{next(self._names)}"
        self.block.instructions.append(f"{reference} = {text}")
        return Written(kind, reference, base, more)

    def put(self, text: str) -> None:
        """An instruction that gives none."""
        self.block.instructions.append(text)

    def _end(self, text: str) -> None:
        assert not self.block.is_terminated, f"{text} behind {self.block.terminator}"
        self.put(text)
        self.block.terminator = text
