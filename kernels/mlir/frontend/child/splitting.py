"""Convolutions that a model's readers split into several `conv2d`, wherever IREE has none."""

from typing import Any

from tilewise.kernels.mlir.frontend.child.operations import operations
from tilewise.kernels.mlir.frontend.child.transposed import split_transposed
from tilewise.kernels.mlir.frontend.child.values import owner, static_numbers
from tilewise.kernels.mlir.frontend.child.volumes import split_volume
from tilewise.kernels.mlir.frontend.child.writing import replace

_IS_TRANSPOSED = 6  # operand of torch.aten.convolution
_VOLUME = 5  # axes
_NAMES = ("torch.aten.conv_transpose", "onnx.ConvTranspose", "torch.aten.conv3d", "tosa.conv3d")


def may_split(module: Any) -> bool:
    """Return whether a module, in its own dialect, may have convolutions to split."""
    return any(_may_be(op) for op, _, _ in operations(module.operation))


def _may_be(op: Any) -> bool:
    name = str(op.attributes["name"].value if op.name == "torch.operator" else op.name)
    if name.startswith(_NAMES):
        return True
    if name == "tensor.insert_slice":
        (steps,) = static_numbers(op, "strides")
        return max(steps, default=1) > 1
    if not name.startswith(("torch.aten.convolution", "stablehlo.convolution", "onnx.", "linalg.")):
        return False
    if "onv" in name and len(op.results) == 1 and _axes(op.results[0]) == _VOLUME:
        return True
    if name == "torch.aten.convolution":
        flag = owner(op.operands[_IS_TRANSPOSED])
        return flag is None or flag.name != "torch.constant.bool" \
            or bool(flag.attributes["value"].value)  # fmt: skip
    return "lhs_dilation" in op.attributes and max(op.attributes["lhs_dilation"]) > 1


def _axes(value: Any) -> int:
    """Return the axes of a tensor of any dialect by its text."""
    shape = str(value.type).partition("<")[2].rpartition(">")[0]
    return shape.count(",") if shape.startswith("[") else shape.count("x")


def split(module: Any) -> bool:
    """Split the convolutions of a module on linalg in place; return whether there were any."""
    is_split = False
    for split_one in (split_transposed, split_volume):
        for op, made in [(op, split_one(op)) for op, _, _ in operations(module.operation)]:
            if made is not None:
                replace(op, *made)
                is_split = True
    return is_split
