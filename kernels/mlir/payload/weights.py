"""Quantised weights in a payload: codes become f32, and so does A, before they are multiplied."""

from tilewise.kernels.mlir.payload.tensors import TensorOperand, generic, mlir_type
from tilewise.kernels.problem import Matmul
from tilewise.kernels.problem.weights import QuantisedWeights

_DIMS = ("i", "j")


def dequantised(problem: Matmul, weights: QuantisedWeights) -> list[str]:
    """Return the lines that make %weights, f32 in the shape of B, of codes, scales, zero points."""
    k, n = _DIMS[::-1] if weights.is_transposed else _DIMS
    groups = f"{k} floordiv {weights.group}"
    at = f"{n}, {groups}" if weights.is_transposed else f"{groups}, {n}"
    inputs = [_operand(problem, "B", "i, j", "%q"), _operand(problem, "scale_b", at, "%s")]
    convert = "arith.uitofp" if weights.zero else "arith.sitofp"
    body = [f"%code = {convert} %q : i8 to f32"]
    code, scale = "%code", "%s"
    if weights.zero:
        inputs.append(_operand(problem, "zero_b", at, "%z"))
        body += ["%zero_f = arith.uitofp %z : i8 to f32", "%d = arith.subf %code, %zero_f : f32"]
        code = "%d"
    if weights.scale != "f32":
        body.append(f"%scale = arith.extf %s : {weights.scale} to f32")
        scale = "%scale"
    body += [f"%w = arith.mulf {code}, {scale} : f32", "linalg.yield %w : f32"]
    output = TensorOperand("%unscaled", problem.operand_shapes["B"], "f32", "i, j", "%o")
    empty = f"%unscaled = tensor.empty() : {output.kind}"
    return [empty, *generic("%weights", _DIMS, inputs, output, body)]


def widened_a(problem: Matmul) -> list[str]:
    """Return the lines that make %wide, A in f32."""
    a = _operand(problem, "A", "i, j", "%x")
    output = TensorOperand("%narrow", a.shape, "f32", "i, j", "%o")
    body = [f"%x_wide = arith.extf %x : {a.element} to f32", "linalg.yield %x_wide : f32"]
    return [
        f"%narrow = tensor.empty() : {output.kind}",
        *generic("%wide", _DIMS, [a], output, body),
    ]


def _operand(problem: Matmul, name: str, indices: str, value: str) -> TensorOperand:
    kind = mlir_type(problem.type_of(name))
    return TensorOperand(f"%{name}", problem.operand_shapes[name], kind, indices, value)
