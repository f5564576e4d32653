"""Drop results of linalg ops that nothing uses: torch's maximum also gives its place."""

from typing import Any

from iree.compiler import ir
from iree.compiler.dialects.transform import interpreter

from tilewise.kernels.mlir.frontend.child.operations import operations

_DROP = """module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    transform.apply_patterns to %module {
      transform.apply_patterns.linalg.erase_unused_operands_and_results
    } : !transform.any_op
    transform.yield
  }
}"""


def drop_unused_results(module: Any) -> None:
    """Leave the used results of each `linalg.generic` alone, if one has several, in place."""
    names = (op.name for op, _, _ in operations(module.operation) if len(op.results) > 1)
    if "linalg.generic" in names:
        script = ir.Module.parse(_DROP, module.context)
        main = script.body.operations[0].operation
        interpreter.apply_named_sequence(module.operation, main, script.operation)
