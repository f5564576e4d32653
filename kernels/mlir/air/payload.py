"""What an air script is applied to: one plain matmul, named, whose op extends narrow inputs."""

from tilewise.kernels.mlir.payload.function import ENTRY
from tilewise.kernels.problem import Matmul


def streamed_payload(problem: Matmul) -> str:
    """The text of `func.func @kernel`: a fill of C and a `linalg.matmul` into it."""
    element = problem.element
    kinds = {
        name: f"tensor<{'x'.join(map(str, shape))}x"
        f"{element.name if name in ('A', 'B') else element.accumulator}>"
        for name, shape in problem.operand_shapes.items()
    }
    arguments = ", ".join(
        f"%{name}: {kind} {{bufferization.writable = {'true' if name == 'C' else 'false'}}}"
        for name, kind in kinds.items()
    )
    zero, result = "0.0" if element.is_float else "0", kinds["C"]
    return (
        f"func.func @{ENTRY}({arguments}) -> {result} {{\n"
        f"  %zero = arith.constant {zero} : {element.accumulator}\n"
        f"  %init = linalg.fill ins(%zero : {element.accumulator}) outs(%C : {result})"
        f" -> {result}\n"
        f"  %product = linalg.matmul ins(%A, %B : {kinds['A']}, {kinds['B']})"
        f" outs(%init : {result}) -> {result}\n"
        f"  return %product : {result}\n"
        "}\n"
    )
