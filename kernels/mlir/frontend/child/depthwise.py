"""Write transposed depthwise convolutions of torch as depthwise ones and a copy.

torch-mlir's lowering fails on them. The phases of a block of outputs are further channels of one
group, and a copy interleaves them; filters get zeros up to a multiple of the step.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from tilewise.kernels.mlir.frontend.child.operations import operations
from tilewise.kernels.mlir.frontend.child.torch_writing import (
    RefusedError,
    TorchWriter,
    constant,
    tensor_type_of,
)
from tilewise.kernels.mlir.frontend.child.values import owner

_NAME = "torch.aten.convolution"
_LISTS = 3, 4, 5  # steps, pads and dilations
_BIAS, _IS_TRANSPOSED, _GROUPS = 2, 6, 8
"""The places of its operands."""


def rewrite_depthwise(module: Any) -> bool:
    """Write the transposed depthwise convolutions of a module in place; return whether any was."""
    found = [op for op, _, _ in operations(module.operation) if op.name == _NAME]
    return sum(map(_rewritten, found)) > 0


def _rewritten(op: Any) -> bool:
    try:
        made = _interleaved(op)
    except RefusedError:
        return False
    if made is None:
        return False
    op.results[0].replace_all_uses_with(made)
    op.erase()
    return True


@dataclass(frozen=True)
class _Axis:
    """An axis of a transposed convolution; `size` and `result` are the lengths of both images."""

    size: int
    taps: int
    step: int
    pad: int
    result: int

    @property
    def blocks_of_taps(self) -> int:
        """As many as reach the last output."""
        reached = self.result + self.pad - (self.size - 1) * self.step
        return -(-max(self.taps, reached) // self.step)

    @property
    def missing(self) -> int:
        """Zeros behind the taps, up to whole blocks."""
        return self.blocks_of_taps * self.step - self.taps

    @property
    def blocks(self) -> int:
        """Blocks of `step` outputs, those in the padding included."""
        return self.size + self.blocks_of_taps - 1


def _interleaved(op: Any) -> Any | None:
    """Return the result by other ops; None for a convolution of another kind."""
    steps, pads, dilations = (_numbers(op.operands[at]) for at in _LISTS)
    groups, is_transposed = (
        constant(op.operands[at], name)
        for at, name in ((_GROUPS, "groups"), (_IS_TRANSPOSED, "direction"))
    )
    (x, dtype), (w, _) = (tensor_type_of(op.operands[at]) for at in (0, 1))
    result, _ = tensor_type_of(op.results[0])
    if not is_transposed or (groups, 1) != (x[1], w[1]) or set(dilations) != {1}:
        return None
    axes = [_Axis(*one) for one in zip(x[2:], w[2:], steps, pads, result[2:], strict=True)]
    write, channels, count = TorchWriter(op), x[1], range(len(axes))
    phases = channels * prod(steps)
    ones = write.wholes([1 for _ in axes])
    operands = [op.operands[0], _filters(write, op.operands[1], axes), write.none(), ones,
                write.wholes([one.blocks_of_taps - 1 for one in axes]), ones, write.truth(False),
                write.wholes([]), write.whole(channels)]  # fmt: skip
    blocks = [one.blocks for one in axes]
    sums = write.tensor("aten.convolution", operands, [x[0], phases, *blocks], dtype)
    sums = write.reshaped(sums, [x[0], channels, *steps, *blocks])
    sums = write.permuted(sums, [0, 1, *(at for i in count for at in (2 + len(axes) + i, 2 + i))])
    shape = [x[0], channels, *(one.blocks * one.step for one in axes)]
    sums = write.reshaped(sums, shape)
    for i, one in enumerate(axes, 2):
        shape[i] = one.result
        ends = map(write.whole, (i, one.pad, one.pad + one.result, 1))
        sums = write.tensor("aten.slice.Tensor", [sums, *ends], shape, dtype)
    bias = op.operands[_BIAS]
    if str(bias.type) != "!torch.none":
        along = write.reshaped(bias, [channels, *(1 for _ in axes)])
        sums = write.tensor("aten.add.Tensor", [sums, along, write.whole(1)], shape, dtype)
    return sums


def _filters(write: TorchWriter, value: Any, axes: list[_Axis]) -> Any:
    """Return a filter for each phase of each channel: every step-th tap, reversed."""
    shape, dtype = tensor_type_of(value)
    if any(one.missing for one in axes):
        around = write.wholes([end for one in reversed(axes) for end in (0, one.missing)])
        whole = [*shape[:2], *(one.taps + one.missing for one in axes)]
        value = write.tensor("aten.constant_pad_nd", [value, around, write.real(0.0)], whole, dtype)
    split = [shape[0], *(size for one in axes for size in (one.blocks_of_taps, one.step))]
    value = write.reshaped(value, split)
    taps = [1 + 2 * i for i in range(len(axes))]
    value = write.tensor("aten.flip", [value, write.wholes(taps)], split, dtype)
    value = write.permuted(value, [0, *(at + 1 for at in taps), *taps])
    phases = shape[0] * prod(one.step for one in axes)
    return write.reshaped(value, [phases, 1, *(one.blocks_of_taps for one in axes)])


def _numbers(value: Any) -> list[int]:
    """Return a list of constant numbers; raise RefusedError for another one."""
    maker = owner(value)
    if maker is None:
        raise RefusedError("computes its windows; give them as constants")
    return [int(constant(one, "windows")) for one in maker.operands]
