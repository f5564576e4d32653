"""Factors of bytes as payloads multiply them: less zero points, in a type that holds the rest."""

from tilewise.kernels.mlir.payload.tensors import TensorOperand, generic, mlir_type, tensor
from tilewise.kernels.problem import DType, Matmul, Problem
from tilewise.kernels.problem.keys import STORED
from tilewise.kernels.problem.weights import QuantisedWeights


def widens_ahead(problem: Problem) -> bool:
    """Return whether factors have zero points, or bytes that the contraction's op cannot widen."""
    if problem.quantised_weights:
        return False
    return bool(problem.zero or problem.b) or problem.dtype == "u8"


def factor_type(problem: Problem) -> DType:
    """Return the type of both factors where they are multiplied."""
    if problem.quantised_weights:
        return STORED["f32"]
    return STORED["i16"] if widens_ahead(problem) else problem.element


def argument_of(problem: Problem, name: str) -> str:
    """Return the argument that holds an operand; %A and %B are its factors, as multiplied."""
    return f"%{name}_bytes" if name in ("A", "B") and widens_ahead(problem) else f"%{name}"


def widened_factors(problem: Problem) -> list[str]:
    """Return lines that make %A and %B of their arguments, where they are widened ahead.

    By `linalg.map`, which no script matches, so that it becomes a loop of its own.
    """
    lines: list[str] = []
    for name in ("A", "B") if widens_ahead(problem) else ():
        shape, factor = problem.operand_shapes[name], name.lower()
        extend = "arith.extui" if problem.type_of(name) == "u8" else "arith.extsi"
        kind, value = tensor(shape, "i16"), f"%{factor}_wide"
        body = [f"{value} = {extend} %{factor}_byte : i8 to i16"]
        if factor in problem.zero:
            lines += [
                f"%first_{factor} = arith.constant 0 : index",
                f"%point_{factor} = tensor.extract %zero_{factor}[%first_{factor}] : tensor<1xi32>",
                f"%short_{factor} = arith.trunci %point_{factor} : i32 to i16",
            ]
            body.append(f"%{factor}_less = arith.subi {value}, %short_{factor} : i16")
            value = f"%{factor}_less"
        lines += [
            f"%{factor}_unset = tensor.empty() : {kind}",
            f"%{name} = linalg.map ins({argument_of(problem, name)} : {tensor(shape, 'i8')})"
            f" outs(%{factor}_unset : {kind})",
            f"(%{factor}_byte: i8, %{factor}_out: i16) {{",
            *(f"  {line}" for line in body),
            f"  linalg.yield {value} : i16",
            "}",
        ]
    return lines


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
