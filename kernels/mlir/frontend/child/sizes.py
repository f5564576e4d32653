"""Sizes for the dynamic dims of a module's arguments, so that every reader sees static shapes."""

import re
from collections.abc import Mapping
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.dialects import children
from tilewise.kernels.mlir.frontend.child.operations import (
    ONNX,
    PIPELINES,
    number_operations,
    operations,
    pipelines_of,
    run_passes,
)
from tilewise.kernels.mlir.frontend.child.values import is_used, owner
from tilewise.kernels.mlir.frontend.dims import check_names

_TYPE = re.compile(r"(tensor<|!torch\.vtensor<\[)((?:\?|\d+)(?:[x,](?:\?|\d+))*)(.*)", re.DOTALL)
_PLAIN = "convert-elementwise-to-linalg,canonicalize,cse"
_REFINE = "torch-shape-refinement-pipeline"
_CASTS = ("tensor.cast", "torch.tensor_static_info_cast")
_PREFIX = re.compile(r"(?<![^.])arg(?=\d+\.\d+$)")


def set_sizes(module: Any, sizes: Mapping[str, int]) -> None:
    """Give the arguments of public functions their sizes, and propagate these, in place.

    StableHLO and TOSA become linalg first: their ops cannot take another shape. Raise DimError
    for wrong names, MLIRError if a pass fails.
    """
    number_operations(module)
    pipelines = pipelines_of(module)
    is_torch = PIPELINES["torch"] in pipelines or PIPELINES[ONNX] in pipelines
    run_passes(module, "inline,symbol-dce")
    for pipeline in () if is_torch else pipelines:
        run_passes(module, pipeline)
    functions = [op for op in children(module.operation)
                 if op.name == "func.func" and len(op.regions[0].blocks) == 1]  # fmt: skip
    dims = _dims(functions)
    given = {_PREFIX.sub("", name): size for name, size in sizes.items()}
    check_names(given, dims)
    for name, (argument, axis) in dims.items():
        if given[name]:
            _set_size(argument, axis, given[name])
    for function in functions:
        if not is_torch:
            _cast_arguments(function)
        _set_type(function)
    if is_torch:
        for op, _, _ in list(operations(module.operation)):
            if op.name == "torch.bind_symbolic_shape":  # says how dims depend on each other
                op.erase()
    if not is_torch or PIPELINES[ONNX] not in pipelines:
        run_passes(module, _REFINE if is_torch else _PLAIN)
    for function in functions:
        _set_type(function)


def _dims(functions: list[Any]) -> dict[str, tuple[Any, int]]:
    """Return argument and axis of each dynamic dim by `ARG.AXIS`, or `FUNCTION.ARG.AXIS`."""
    found = {}
    for function in functions:
        prefix = f"{function.attributes['sym_name'].value}." if len(functions) > 1 else ""
        for number, argument in enumerate(function.regions[0].blocks[0].arguments):
            for axis, size in enumerate(_sizes(argument)):
                if size == "?":
                    found[f"{prefix}{number}.{axis}"] = argument, axis
    return found


def _sizes(value: Any) -> list[str]:
    found = _TYPE.fullmatch(str(value.type))
    return re.split("[x,]", found[2]) if found else []


def _set_size(argument: Any, axis: int, size: int) -> None:
    found = _TYPE.fullmatch(str(argument.type))
    assert found is not None
    sizes = _sizes(argument)
    sizes[axis] = str(size)
    text = ("x" if found[1] == "tensor<" else ",").join(sizes)
    argument.set_type(ir.Type.parse(f"{found[1]}{text}{found[3]}", argument.type.context))


def _cast_arguments(function: Any) -> None:
    """Cast arguments to their former types, which canonicalization folds into the ops."""
    block, types = function.regions[0].blocks[0], function.attributes["function_type"].value
    for argument, former in zip(block.arguments, ir.FunctionType(types).inputs, strict=True):
        if argument.type != former:
            cast = ir.Operation.create(
                "tensor.cast", [former], [argument], loc=function.location,
                ip=ir.InsertionPoint.at_block_begin(block),
            )  # fmt: skip
            argument.replace_all_uses_except(cast.result, cast)


def _set_type(function: Any) -> None:
    """Make a function's type that of its arguments and of its results before their last casts."""
    block = function.regions[0].blocks[0]
    end = block.operations[len(block.operations) - 1].operation
    for number, value in enumerate(end.operands):
        cast = owner(value)
        if cast is not None and cast.name in _CASTS:
            end.operands[number] = cast.operands[0]
            if not is_used(cast.results[0]):
                cast.erase()
    inputs, results = ([one.type for one in values] for values in (block.arguments, end.operands))
    kind = ir.FunctionType.get(inputs, results, function.context)
    function.attributes["function_type"] = ir.TypeAttr.get(kind, function.context)
