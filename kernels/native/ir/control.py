"""Loops and branches that carry values, as phis: what keeps accumulators in registers."""

from collections.abc import Callable, Sequence

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.vectors import Value, const

Transform = Callable[[list[Value]], list[Value]]


def branch(
    builder: Builder,
    condition: Value,
    then: Transform,
    values: list[Value],
    otherwise: Transform | None = None,
) -> list[Value]:
    """Return `then(values)` under the condition, else `otherwise(values)` or `values`, by phis."""
    before = builder.block
    taken, after = builder.append_basic_block("then"), builder.append_basic_block("merge")
    other = builder.append_basic_block("else") if otherwise else after
    builder.cbranch(condition, taken, other)
    builder.position_at_end(taken)
    changed = then(values)
    builder.branch(after)
    taken = builder.block
    kept, unchanged = before, values
    if otherwise:
        builder.position_at_end(other)
        unchanged = otherwise(values)
        builder.branch(after)
        kept = builder.block
    builder.position_at_end(after)
    merged = []
    for old, new in zip(unchanged, changed, strict=True):
        phi = builder.phi(new.type)
        phi.add_incoming(old, kept)
        phi.add_incoming(new, taken)
        merged.append(phi)
    return merged


def when(
    builder: Builder, flags: Value, flag: int, possible: int, then: Transform, values: list[Value]
) -> list[Value]:
    """Return `then(values)` where `flag` is set in `flags`, else `values`.

    No code is emitted for a flag that is not one of the `possible` ones.
    """
    if not flag & possible:
        return values
    is_set = builder.icmp_signed("!=", builder.and_(flags, const(flag)), const(0))
    return branch(builder, is_set, then, values)


class CountedLoop:
    """A counted loop with carried values: `for i in range(0, count, step)`, count >= step.

    Use as:  loop = Loop(builder, carried); ... body on loop.index and loop.carried ...;
    results = loop.close(new_carried, count, step).
    """

    def __init__(self, builder: Builder, carried: Sequence[Value], name: str) -> None:
        self.builder = builder
        before = builder.block
        self._head = builder.append_basic_block(name)
        builder.branch(self._head)
        builder.position_at_end(self._head)
        self._phis = []
        for value in (const(0), *carried):
            phi = builder.phi(value.type)
            phi.add_incoming(value, before)
            self._phis.append(phi)

    @property
    def index(self) -> Value:
        """Return the loop variable."""
        return self._phis[0]

    @property
    def carried(self) -> list[Value]:
        """Return the carried values as this iteration sees them."""
        return list(self._phis[1:])

    def close(self, carried: Sequence[Value], count: Value, step: int) -> list[Value]:
        """End the body, go on after the loop, and return the final values."""
        builder = self.builder
        following = builder.add(self.index, const(step))
        after = builder.append_basic_block("after")
        for phi, value in zip(self._phis, (following, *carried), strict=True):
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_signed("<", following, count), self._head, after)
        builder.position_at_end(after)
        return list(carried)


def turns(builder: Builder, index: Value, step: int) -> Value:
    """Return how many iterations of a loop by `step` precede `index`.

    A shift where possible: a quotient needs instructions for signs, which would be in the loop.
    """
    if step & (step - 1):
        return builder.sdiv(index, const(step))
    return builder.ashr(index, const(step.bit_length() - 1))
