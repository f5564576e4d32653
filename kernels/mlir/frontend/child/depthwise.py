"""Write transposed depthwise convolutions of torch as plain ones of an image with inserted zeros.

torch-mlir's lowering fails on them. It gives other transposed convolutions the same form, which
`transposed` splits.
"""

from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.frontend.child.operations import operations
from tilewise.kernels.mlir.frontend.child.torch_writing import (
    RefusedError,
    TorchWriter,
    constant,
    tensor_type,
    tensor_type_of,
)
from tilewise.kernels.mlir.frontend.child.values import owner

_NAME = "torch.aten.convolution"
_BIAS, _IS_TRANSPOSED, _GROUPS = 2, 6, 8  # places of operands
_LISTS = 3, 4, 5, 7  # steps, pads, dilations, more outputs


def rewrite_depthwise(module: Any) -> bool:
    """Write the transposed depthwise convolutions of a module in place; return whether any was."""
    found = [op for op, _, _ in operations(module.operation) if op.name == _NAME]
    return sum(map(_rewritten, found)) > 0


def _rewritten(op: Any) -> bool:
    try:
        made = _plain(op)
    except RefusedError:
        return False
    op.results[0].replace_all_uses_with(made)
    op.erase()
    return True


def _plain(op: Any) -> Any:
    """Return the result by other ops; raise RefusedError for a convolution of another kind."""
    steps, pads, dilations, more = (_numbers(op.operands[at]) for at in _LISTS)
    groups, is_transposed = (
        constant(op.operands[at], name)
        for at, name in ((_GROUPS, "groups"), (_IS_TRANSPOSED, "direction"))
    )
    (x, _), (w, dtype) = (tensor_type_of(op.operands[at]) for at in (0, 1))
    if not is_transposed or (groups, 1) != (x[1], w[1]):
        raise RefusedError("is not a transposed depthwise convolution")
    axes = zip(x[2:], w[2:], steps, pads, dilations, more or [0] * len(steps), strict=True)
    first, whole = [0, 0], list(x[:2])
    for size, taps, step, pad, dilation, behind in axes:
        around = dilation * (taps - 1) - pad
        if min(around, around + behind) < 0:
            raise RefusedError("crops more than its filter adds")
        first.append(around)
        whole.append((size - 1) * step + 1 + 2 * around + behind)
    write = TorchWriter(op)
    image = _inserted(write, op.operands[0], first, [1, 1, *steps], whole)
    places = write.wholes(range(2, len(w)))
    filters = write.tensor("aten.flip", [op.operands[1], places], w, dtype)
    ones, zeros = (write.wholes([one] * len(steps)) for one in (1, 0))
    operands = [image, filters, op.operands[_BIAS], ones, zeros, op.operands[_LISTS[2]],
                write.truth(False), write.wholes([]), op.operands[_GROUPS]]  # fmt: skip
    result, dtype = tensor_type_of(op.results[0])
    return write.tensor("aten.convolution", operands, result, dtype)


def _inserted(
    write: TorchWriter, value: Any, first: list[int], steps: list[int], shape: list[int]
) -> Any:
    """Return a tensor whose elements are `steps` apart in zeros, from `first` on."""
    (sizes, dtype), context = tensor_type_of(value), write.op.context
    outer, inner = (f"tensor<{'x'.join(map(str, (*of, dtype)))}>" for of in (shape, sizes))
    zeros = ir.Attribute.parse(f"dense<0.0> : {outer}", context)
    attributes = {
        f"static_{name}": ir.DenseI64ArrayAttr.get(list(of), context)
        for name, of in (("offsets", first), ("sizes", sizes), ("strides", steps))
    }
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([1, 1, 0, 0, 0], context)
    plain = write.op_of("torch_c.to_builtin_tensor", [value], inner)
    around = write.op_of("arith.constant", (), outer, value=zeros)
    made = write.op_of("tensor.insert_slice", [plain, around], outer, **attributes)
    return write.op_of("torch_c.from_builtin_tensor", [made], tensor_type(shape, dtype))


def _numbers(value: Any) -> list[int]:
    """Return a list of constant numbers; raise RefusedError for another one."""
    maker = owner(value)
    if maker is None:
        raise RefusedError("computes its windows; give them as constants")
    return [int(constant(one, "windows")) for one in maker.operands]
