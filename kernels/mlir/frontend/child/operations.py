"""The operations of a module in order with their places, and the module lowered to linalg."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from tilewise.kernels.mlir.dialects import children
from tilewise.kernels.mlir.frontend.child.bodies import MULTIPLICATIONS, multiplies, reduces
from tilewise.kernels.mlir.frontend.child.torch_writing import TorchWriter
from tilewise.kernels.mlir.frontend.child.values import owner, rank
from tilewise.kernels.mlir.frontend.child.writing import Writer, replace, written

FUNCTIONS = ("func.func", "util.func", "util.initializer")
_PLACE = re.compile(r'"([^"]*)":(\d+):(\d+)')
_NUMBER = re.compile(r'"#(\d+)"')
_LEFT = re.compile(r"(?:stablehlo|tosa|torch\.aten|tm_tensor|iree_linalg_ext|chlo)\.\w*"
                   r"(?:conv|dot|matmul|attention|mm$|linear|pool|scaled)")  # fmt: skip
_NAMES = ("matmul", "conv", "attention", "pooling", "contract", "matvec", "vecmat", "dot", "mmt4d")
_LOW = re.compile(r"vector\.(?:contract|outerproduct|fma|matrix_multiply)$|"
                  r"\w+\.(?:intr\.)?\w*(?:mma|mfma|wmma|tile_mul|matrix_multiply)\w*$")  # fmt: skip
_LOAD = re.compile(r"(?:memref|affine|vector|tensor)\.(?:(?:vector_|masked)?load|extract|gather|"
                   r"transfer_read)")  # fmt: skip
CHOSEN = "is a part of an algorithm that was chosen already"
MOST_SEARCHED = 2000  # characters of a location
LONGEST_NAME = 120


def operations(top: Any) -> Iterator[tuple[Any, str, int]]:
    """Yield the operations outside of linalg's bodies, with their function and number there."""
    waiting: list[tuple[Iterator[Any], str]] = [(children(top), "")]
    numbers: dict[str, int] = {}
    while waiting:
        inner, function = waiting[-1]
        op = next(inner, None)
        if op is None:
            waiting.pop()
            continue
        numbers[function] = numbers.get(function, -1) + 1
        yield op, function, numbers[function]
        if op.name in FUNCTIONS and "sym_name" in op.attributes:
            function = _symbol(op.attributes["sym_name"])
        if not op.name.startswith("linalg.") and len(op.regions):
            waiting.append((children(op), function))


def _symbol(name: Any) -> str:
    """Return a symbol in printable characters."""
    text = name.value_bytes.decode(errors="backslashreplace")
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def number_operations(module: Any) -> None:
    """Set the location of each op without one to its number, which lowering preserves.

    An op that has a number keeps it.
    """
    for op, _, number in operations(module.operation):
        if _location(op, _PLACE) is None and _location(op, _NUMBER) is None:
            op.location = ir.Location.name(f"#{number}", op.location, module.context)


def where(op: Any, function: str, number: int) -> str:
    """Return the function, the file location (else the op's number), and the op.

    The number is that of `number_operations` if the op was lowered.
    """
    name = function.removesuffix("$async")[:LONGEST_NAME]
    found = _location(op, _PLACE)
    if found is None:
        given = _location(op, _NUMBER)
        return f"@{name}#{given[1] if given else number} {op.name}"
    file = "" if found[1] == "-" else f"{Path(found[1]).name}:"
    return f"@{name} {file}{found[2]}:{found[3]} {op.name}"


def _location(op: Any, form: re.Pattern[str]) -> re.Match[str] | None:
    return form.search(str(op.location)[:MOST_SEARCHED])


def why_left(op: Any) -> str | None:
    """Return why an operation that is not a linalg op with one result should have been one."""
    if op.name.startswith(("linalg.", "iree_linalg_ext.")) and len(op.results) != 1:
        return _why_not_one_result(op)
    if "winograd" in op.name:
        return CHOSEN
    if _LEFT.match(op.name):
        return "has no form of its own in linalg"
    if _LOW.match(op.name) or _multiplies_in_loops(op):
        return "multiplies numbers or vectors in loops; give the model on tensors"
    return None


def _why_not_one_result(op: Any) -> str | None:
    """Return the same for an op on buffers, or with several results."""
    is_named = any(word in op.name for word in _NAMES)
    has_body = op.name in ("linalg.generic", "linalg.reduce")
    if not is_named and not (has_body and reduces(op) and multiplies(op)):
        return None
    if not op.results:
        return "works on buffers; give the model before bufferization, on tensors"
    return f"has {len(op.results)} results; a problem has one"


def _multiplies_in_loops(op: Any) -> bool:
    """Return whether an op multiplies scalars that were loaded from memory."""
    is_one = op.name in MULTIPLICATIONS and not rank(op.results[0])
    return is_one and any(_is_loaded(value) for value in op.operands)


def _is_loaded(value: Any) -> bool:
    maker = owner(value)
    while maker is not None and maker.name.startswith(("arith.ext", "arith.trunc", "arith.sitofp",
                                                       "arith.uitofp")):  # fmt: skip
        maker = owner(maker.operands[0])
    return maker is not None and bool(_LOAD.fullmatch(maker.name))


_PRODUCTS = re.compile(r"(?:stablehlo|vhlo)\.(?:dot|dot_general|convolution)(?:_v\d+)?|"
                       r"tosa\.(?:depthwise_)?conv2d")  # fmt: skip
_CASTS = {"stablehlo": "stablehlo.convert", "vhlo": "vhlo.convert_v1", "tosa": "tosa.cast"}
WIDE = "wide_sums"
_HALF, _ONE, _UNIT_AXIS = map(re.compile, ("bf16|f16", r"\b1 : i64", "[<x]1x"))


def widen_sums(module: Any) -> tuple[bool, bool]:
    """Let products of bf16 and f16 be summed in f32 with their bias, and rounded behind, in place.

    IREE sums in the type of the result, which StableHLO leaves open, and fails on wider sums of
    depthwise convolutions: `to_linalg` widens those. Return whether any product changed, and
    whether any is marked for `to_linalg`.
    """
    found = [op for op, _, _ in operations(module.operation)
             if _PRODUCTS.fullmatch(op.name) and _may_widen(op)]  # fmt: skip
    if found:
        number_operations(module)
    marks = 0
    for op in found:
        if _is_depthwise(op):
            op.attributes[WIDE] = ir.UnitAttr.get(op.context)
            marks += 1
            continue
        cast, write, kind = _CASTS[op.name.partition(".")[0]], TorchWriter(op), op.results[0].type
        if op.name.startswith("tosa."):
            bias = op.operands[2]
            op.operands[2] = write.op_of(cast, [bias], _HALF.sub("f32", str(bias.type)))
        sums = op.clone(ip=ir.InsertionPoint(op)).operation.results[0]
        sums.set_type(ir.Type.parse(_HALF.sub("f32", str(kind)), op.context))
        op.results[0].replace_all_uses_with(write.op_of(cast, [sums], str(kind)))
        op.erase()
    return len(found) > marks, marks > 0


def _may_widen(op: Any) -> bool:
    """Return whether sums may be wider than a product's result."""
    sums = str(op.attributes.get("acc_type"))
    return bool(_HALF.search(str(op.results[0].type))) and sums != "f16"


def _is_depthwise(op: Any) -> bool:
    """Return whether a product of StableHLO may be a depthwise convolution."""
    groups = str(op.attributes.get("feature_group_count"))
    has_groups = groups != "None" and not _ONE.search(groups)
    return has_groups and bool(_UNIT_AXIS.search(str(op.operands[1].type)))


def _widen_depthwise(module: Any) -> bool:
    """Let marked depthwise convolutions on linalg be summed in f32, in place, unless dynamic."""
    found = [op for op, _, _ in operations(module.operation)
             if WIDE in op.attributes and op.name.startswith("linalg.depthwise_conv")
             and all(one.type.has_static_shape for one in op.operands)]  # fmt: skip
    for op in found:
        replace(op, _with_wide_sums(op), list(op.operands)[:2])
    return bool(found)


def _with_wide_sums(op: Any) -> str:
    """Return a depthwise convolution of linalg with sums in f32 as a function."""
    write, (x, w, made) = Writer(), written(op.operands)
    init = write.zeros(made.shape, "f32")
    given = ", ".join(f"{name} = {op.attributes[name]}" for name in ("dilations", "strides"))
    sums = write.add(f"{op.name} {{{given}}} ins(%x, %w : {x.type}, {w.type}) "
                     f"outs({init.name} : {init.type})", made.shape, "f32")  # fmt: skip
    narrow = write.add(f"arith.truncf {sums.name} : {sums.type}", made.shape, made.kind, "to")
    return write.function((x, w), narrow)


ONNX = "onnx"
PIPELINES = {
    ONNX: "torch-onnx-to-torch-backend-pipeline",
    "torch": "torch-to-iree",
    "torch_c": "torch-to-iree",
    "stablehlo": "iree-stablehlo-input-transformation-pipeline",
    "chlo": "iree-stablehlo-input-transformation-pipeline",
    "vhlo": "iree-stablehlo-input-transformation-pipeline",
    "tosa": "iree-tosa-input-transformation-pipeline",
}
"""The pipeline that lowers each dialect, in execution order; ONNX becomes torch."""
_NOT_TAKEN_APART = ("aten.flatten.using_ints", "aten.unflatten.int", "aten.adaptive_avg_pool1d",
                    "aten.adaptive_avg_pool2d")  # fmt: skip
TORCH_ON_TENSORS = (
    "func.func(torch-reduce-op-variants,torch-decompose-complex-ops{legal-ops={"
    f"{','.join(_NOT_TAKEN_APART)}}}}},torch-scalarize-shapes),"
    "torch-backend-to-linalg-on-tensors-backend-pipeline"
)
"""Lower torch to linalg as torch-mlir does: each `func.func` stays one on tensors, whereas
`torch-to-iree` makes functions that take IREE's buffers and fences."""


def to_linalg(
    module: Any, rewrite_torch: Callable[[Any], bool], *, keeps_functions: bool = False
) -> bool:
    """Lower a module in place; places of its ops do not depend on the pipelines.

    `rewrite_torch` changes a module in torch's dialect before its pipeline. Return whether it did,
    or sums were widened. With `keeps_functions`, functions on torch's tensors become functions on
    tensors. Raise MLIRError if a pipeline fails.
    """
    pipelines, is_rewritten = pipelines_of(module), False
    if pipelines:
        number_operations(module)
    for pipeline in pipelines:
        is_torch = pipeline == PIPELINES["torch"]
        is_rewritten |= is_torch and rewrite_torch(module)
        run_passes(module, TORCH_ON_TENSORS if is_torch and keeps_functions else pipeline)
    return _widen_depthwise(module) or is_rewritten


def run_passes(module: Any, passes: str) -> None:
    """Run passes on a module in place; raise MLIRError if one fails."""
    PassManager.parse(f"builtin.module({passes})").run(module.operation)


def pipelines_of(module: Any) -> list[str]:
    """Return the pipelines that a module needs, each once, in the order of `PIPELINES`."""
    found: set[str] = set()

    def look(op: Any) -> Any:
        found.add(op.name.partition(".")[0])
        if op.name == "torch.operator" and op.attributes["name"].value.startswith("onnx."):
            found.add(ONNX)
        return ir.WalkResult.ADVANCE

    module.operation.walk(look, ir.WalkOrder.PRE_ORDER)
    return list(dict.fromkeys(PIPELINES[name] for name in PIPELINES if name in found))
