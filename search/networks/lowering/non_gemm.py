"""Passes over memory: pools, sums, pads, transpositions, and copies between layouts."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tilewise.kernels.mlir.frontend.program import Action, Loops, ModuleProgram, Pad, PoolWindow
from tilewise.kernels.native.conversion import BLOCK, Conversion, Moves, moves_of
from tilewise.kernels.native.programs.steps import Pass, ProgramStep, Row
from tilewise.kernels.target.cores import LINE_BYTES
from tilewise.search.errors import NetworkError
from tilewise.search.networks.lowering.kernel_calls import (
    KernelCalls,
    Memory,
    pass_step,
    refused,
    table_of,
)
from tilewise.search.networks.lowering.memory import Buffers, sizes_of, static, type_of
from tilewise.search.networks.plan import Plan, PlannedNode, PlannedUse
from tilewise.search.networks.variants import TensorLayout

_ELEMENT = re.compile(r"(?:b?f|[su]?i)(1|2|4|8|16|32|64)")


def conversion_of_loops(loops: Loops) -> Conversion | None:
    """Return loops as a copy of a tensor without unit axes; None if they are no copy."""
    if not loops.is_copy or loops.accesses[0].read is None:
        return None
    pairs = zip(loops.extents, loops.accesses[0].steps, strict=True)
    axes = [(size, step) for size, step in pairs if size > 1]
    sizes = tuple(size for size, _ in axes)
    stored = tuple(sorted(range(len(axes)), key=lambda axis: -axes[axis][1]))
    steps = [prod(sizes[axis] for axis in stored[i + 1 :]) for i in range(len(stored))]
    if not axes or [axes[axis][1] for axis in stored] != steps:
        return None
    return Conversion(sizes, stored, tuple(range(len(axes))), (0,) * len(axes))


def conversion_of(
    shape: tuple[int, ...], dtype: str, made: TensorLayout, wanted: TensorLayout
) -> tuple[Conversion, int] | None:
    """Return the copy of a tensor and the bytes of an element, if it is possible."""
    found = _ELEMENT.fullmatch(dtype)
    if found is None or made.halo or made.block or wanted.block:
        return None
    halo = tuple(wanted.halo if axis in wanted.around else 0 for axis in range(len(shape)))
    return Conversion(shape, made.order, wanted.order, halo), max(1, int(found[1]) // 8)


def copy_calls(
    label: str, node: int | None, conversion: Conversion, size: int, source: int, target: int
) -> KernelCalls:
    """Return the copy of a buffer to another, of elements of `size` bytes."""
    moves = moves_of(conversion)
    return KernelCalls(
        label, node, (source,), (target,),
        lambda memory: [_copy(memory, moves, size, source, target)],
    )  # fmt: skip


_LOWEST = -3.4e38
Shape = tuple[int, ...]


@dataclass
class SingleOps:
    """Makes the kernel calls of non-GEMM ops."""

    plan: Plan
    program: ModuleProgram
    buffers: Buffers

    def calls(self, number: int) -> KernelCalls | None:
        """Return the work of a node; None for a pad that the following pool implements.

        Raises NetworkError for an unsupported op.
        """
        node, action = self.plan.nodes[number], self.program.outline.actions[number]
        read, made = self._one_of_each(node)
        if action.loops is not None and action.sum is None:
            return self._transposed(number, action.loops)
        if action.pad is not None:
            return None if self._pool_behind(number) else self._pad(number, action.pad, read, made)
        if action.window is not None:
            return self._window(number, action.window, read, made)
        assert action.sum is not None
        return self._sum(number, action.sum.axes, read, made)

    def conversion(self, tensor: int, layout: TensorLayout, node: int | None) -> KernelCalls:
        """Return the copy of a tensor to another layout."""
        made = self.plan.tensors[tensor]
        found = conversion_of(static(self.plan, tensor), made.dtype, made.layout, layout)
        if found is None:
            subject = f"tensor {tensor} of {made.dtype}, which is {made.layout.name},"
            raise NetworkError(f"{subject} cannot be copied to {layout.name}; make the plan again")
        source, target = self.buffers.made(tensor), self.buffers.of(tensor, layout)
        label = f"copy of tensor {tensor} to {layout.name}"
        return copy_calls(label, node, *found, source, target)

    def _one_of_each(self, node: PlannedNode) -> tuple[PlannedUse, PlannedUse]:
        """Return the only tensors that a node reads and makes, in any order of axes."""
        if len(node.reads) != 1 or len(node.makes) != 1:
            raise refused(node, f"reads {len(node.reads)} tensors; one is run here")
        layouts = node.reads[0].layout, node.makes[0].layout
        if any(layout != TensorLayout(layout.order) for layout in layouts):
            raise refused(node, "has a layout that is more than an order of axes")
        return node.reads[0], node.makes[0]

    def _uses(self, number: int) -> tuple[tuple[int, ...], int]:
        node = self.plan.nodes[number]
        reads = tuple(self.buffers.of(use.tensor, use.layout) for use in node.reads)
        return reads, self.buffers.of(node.makes[0].tensor, node.makes[0].layout)

    def _transposed(self, number: int, loops: Loops) -> KernelCalls:
        """Return a copy of a tensor with its axes reordered."""
        conversion = conversion_of_loops(loops)
        if conversion is None:
            raise refused(self.plan.nodes[number], "reads or reduces along axes that make no rows")
        (source,), target = self._uses(number)
        size = np.dtype(type_of(self.plan, self.plan.nodes[number].makes[0].tensor)).itemsize
        return copy_calls("transposition", number, conversion, size, source, target)

    def _pad(self, number: int, pad: Pad, read: PlannedUse, made: PlannedUse) -> KernelCalls:
        order = _order(read)
        shape, wide, low = (_moved(one, order) for one in (_sizes(read), _sizes(made), pad.low))
        (source,), target = self._uses(number)
        moves = _moves_of_pad(shape, wide, low)

        def steps(memory: Memory) -> list[ProgramStep]:
            ends = (memory.at(target),) * 2
            filled = pass_step(Pass("fill"), memory, ends, prod(wide), (pad.value,))
            return [filled, _copy(memory, moves, 4, source, target)]

        return KernelCalls("tensor.pad", number, (source,), (target,), steps)

    def _window(
        self, number: int, window: PoolWindow, read: PlannedUse, made: PlannedUse
    ) -> KernelCalls:
        node, before = self.plan.nodes[number], self.pad_before(number)
        shape, above = _sizes(read), (0,) * len(window.size)
        if before is not None:
            padded, pad = self.plan.nodes[before], self.program.outline.actions[before].pad
            assert pad is not None
            shape, above = _sizes(padded.reads[0]), pad.low
            source = self.buffers.of(padded.reads[0].tensor, padded.reads[0].layout)
        else:
            source = self.buffers.of(read.tensor, read.layout)
        target = self.buffers.of(made.tensor, made.layout)
        order = _order(read)
        shape, above, to = (_moved(one, order) for one in (shape, above, _sizes(made)))
        parts = (_moved(one, order) for one in (window.size, window.strides, window.dilations))
        sizes = _geometry(PoolWindow(window.kind, *parts), shape, to, above)
        if sizes is None:
            raise refused(node, "moves its window over axes that are not neighbours")
        outer, height, numbers = sizes
        name = "max" if window.kind == "max" else "window sum"

        def steps(memory: Memory) -> list[ProgramStep]:
            ends = memory.at(source), memory.at(target)
            return [pass_step(Pass(name), memory, ends, outer * height, numbers)]

        return KernelCalls(f"{node.op}", number, (source,), (target,), steps)

    def _sum(
        self, number: int, axes: tuple[int, ...], read: PlannedUse, made: PlannedUse
    ) -> KernelCalls:
        node, order = self.plan.nodes[number], _order(read)
        shape, axes = _moved(_sizes(read), order), tuple(sorted(map(order.index, axes)))
        if not axes or axes != tuple(range(axes[0], axes[-1] + 1)):
            raise refused(node, "sums over axes that are not neighbours")
        outer, many, inner = (
            prod(shape[: axes[0]]), prod(shape[i] for i in axes), prod(shape[axes[-1] + 1 :])
        )  # fmt: skip
        if prod(_sizes(made)) != outer * inner:
            raise refused(node, "makes a tensor of another size")
        (source,), target = self._uses(number)

        def steps(memory: Memory) -> list[ProgramStep]:
            ends = memory.at(source), memory.at(target)
            return [pass_step(Pass("sum"), memory, ends, outer, (many, inner))]

        return KernelCalls(f"sum {node.op}", number, (source,), (target,), steps)

    def _pool_behind(self, number: int) -> bool:
        """Return whether a pad's only reader is a pool that ignores the padding."""
        tensor = self.plan.nodes[number].makes[0].tensor
        behind = self.program.outline.graph.readers_of(tensor)
        return len(behind) == 1 and self.pad_before(behind[0]) == number

    def pad_before(self, number: int) -> int | None:
        """Return the pad whose tensor only this pool reads, if it is redundant."""
        window = self.program.outline.actions[number].window
        if window is None:
            return None
        tensor = self.plan.nodes[number].reads[0].tensor
        uses = [use for node in self.plan.nodes for use in node.reads if use.tensor == tensor]
        made = [i for i, node in enumerate(self.plan.nodes)
                if any(use.tensor == tensor for use in node.makes)]  # fmt: skip
        if len(uses) != 1 or len(made) != 1 or self.plan.tensors[tensor].is_result:
            return None
        action: Action = self.program.outline.actions[made[0]]
        if action.pad is None or not self.plan.nodes[made[0]].reads:
            return None
        held = self.plan.tensors[tensor]
        if (uses[0].shape, uses[0].layout) != (held.shape, held.layout):
            return None
        if self._is_added_to(self.plan.nodes[made[0]].reads[0].tensor, made[0], number):
            return None  # sums may be made in its memory before the pool comes
        matters = action.pad.value > _LOWEST if window.kind == "max" else action.pad.value != 0
        image = _sizes(self.plan.nodes[made[0]].reads[0])
        return None if matters or not _fills_none(action.pad, window, image) else made[0]

    def _is_added_to(self, tensor: int, first: int, last: int) -> bool:
        """Return whether a node between two others accumulates into a tensor."""
        between = self.plan.nodes[first + 1 : last]
        return any(use.role == "C" and use.tensor == tensor
                   for node in between for use in node.reads)  # fmt: skip


def _order(use: PlannedUse) -> Shape:
    """Return all axes of a tensor in memory order, unit axes first if it is permuted."""
    axes = tuple(range(len(use.shape)))
    if use.layout.is_plain:
        return axes
    return (*(axis for axis in axes if axis not in use.layout.order), *use.layout.order)


def _moved(values: Sequence[int], order: Shape) -> Shape:
    return tuple(values[axis] for axis in order)


def _fills_none(pad: Pad, window: PoolWindow, image: Shape) -> bool:
    """Return whether a pad only widens axes of the window and never fills a whole window.

    A window that begins or ends in an image of at least its dilation has an element in it.
    """
    axes = zip(pad.low, pad.high, window.size, window.dilations, image, strict=True)
    return all(
        max(low, high) <= (size - 1) * step and (size == 1 or extent >= step)
        for low, high, size, step, extent in axes
    )


def _sizes(use: PlannedUse) -> Shape:
    return sizes_of(use.tensor, use.shape)


def _geometry(
    window: PoolWindow, shape: Shape, made: Shape, above: Sequence[int]
) -> tuple[int, int, tuple[int, ...]] | None:
    """Return outer size, output height and pass parameters; None for separate window axes."""
    moving = [i for i, pair in enumerate(zip(window.size, window.strides, strict=True))
              if pair != (1, 1)]  # fmt: skip
    if not moving or moving[-1] - moving[0] > 1 or len(shape) != len(made):
        return None
    first = moving[0]
    pair = (first, first + 1) if first + 1 in moving else (first, None)
    inner = prod(shape[(pair[1] or first) + 1 :])

    def both(values: Sequence[int], other: int) -> tuple[int, int]:
        return values[pair[0]], other if pair[1] is None else values[pair[1]]

    numbers: tuple[int, ...] = (*both(shape, 1), *both(made, 1), inner)
    for values, other in ((window.size, 1), (window.strides, 1), (window.dilations, 1), (above, 0)):
        numbers += both(values, other)
    return prod(shape[:first]), made[first], numbers


def _moves_of_pad(shape: Shape, wide: Shape, low: Sequence[int]) -> Moves:
    """Return the rows of a tensor inside a wider one."""
    conversion = Conversion(shape, *(tuple(range(len(shape))),) * 2, (0,) * len(shape))
    plain = moves_of(conversion)
    steps = [prod(wide[i + 1 :]) for i in range(len(wide))]
    tos = np.array([sum(b * s for b, s in zip(low, steps, strict=True))])
    for size, step in zip(shape[:-1], steps[:-1], strict=True):
        tos = np.add.outer(tos, np.arange(size, dtype=np.int64) * step).reshape(-1)
    return Moves(plain.froms, tos.astype(np.int64), plain.lengths, None)


def _copy(memory: Memory, moves: Moves, size: int, source: int, target: int) -> ProgramStep:
    """Return a copy that is divided among the threads."""
    sizes = [one.nbytes // size for one in (memory.bytes_of(source), memory.bytes_of(target))]
    ends = memory.at(source), memory.at(target)
    rows = list[Row]()
    for part in _parts(moves, memory, size):
        tables = table_of(part.froms), table_of(part.tos)
        of_blocks = () if part.steps is None else (part.lengths[1], *part.steps)
        rows.append((*ends, 0, len(part.froms), *tables, part.lengths[0], *sizes, *of_blocks))
    return ProgramStep(Pass(f"{'rows' if moves.steps is None else 'blocks'} {size}"), tuple(rows))


def _parts(moves: Moves, memory: Memory, size: int) -> Iterator[Moves]:
    """Yield each thread's part of a copy of elements of `size` bytes.

    These are some of the moves, or a part of each along a side if that is clearly more equal.
    """
    line = BLOCK if moves.steps else max(BLOCK, LINE_BYTES // size)
    whole, units = (len(moves.froms), *moves.lengths), (1, line, BLOCK)
    counts = [-(-size // unit) for size, unit in zip(whole, units, strict=True)]
    shares = [-(-count // memory.threads) / max(1, count) for count in counts]
    cut = min(range(3 if moves.steps else 2), key=lambda i: shares[i] * (1.25 if i else 1.0))
    to_step, from_step = moves.steps or (1, 1)
    for first, end in memory.parts(counts[cut]):
        begins, ends = [0, 0, 0], list(whole)
        begins[cut], ends[cut] = first * units[cut], min(end * units[cut], whole[cut])
        some, (_, row, column) = slice(begins[0], ends[0]), begins
        froms = moves.froms[some] + row + from_step * column
        tos = moves.tos[some] + to_step * row + column
        yield Moves(froms, tos, (ends[1] - row, ends[2] - column), moves.steps)
