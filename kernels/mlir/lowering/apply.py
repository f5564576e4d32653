"""Applying a script with MLIR's own interpreter, and looking at what came out."""

import re
from collections.abc import Iterator
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects.transform import interpreter

MAIN = "__transform_main"
SCHEDULE_ATTRIBUTE = "transform.with_named_sequence"
LOOPS = ("scf.for", "scf.forall", "scf.parallel")
MULTIPLICATIONS = ("arith.mulf", "arith.muli", "math.fma", "vector.fma")
_LOCATION = re.compile(r'"[^"]*":(\d+):\d+')


class StageError(Exception):
    """A stage of proving a script failed.

    Args:
        failure: the class, one of `proof.FAILURES`.
        message: what the stage said.
    """

    def __init__(self, failure: str, message: str) -> None:
        super().__init__(message)
        self.failure = failure


class Diagnostics:
    """Collects what MLIR reports while a context is in use."""

    def __init__(self, context: Any) -> None:
        self._errors: list[str] = []
        context.attach_diagnostic_handler(self._collect)

    def _collect(self, diagnostic: Any) -> bool:
        if diagnostic.severity == ir.DiagnosticSeverity.ERROR:
            notes = [f"{note.location}: {note.message}" for note in diagnostic.notes]
            self._errors.append("\n".join([f"{diagnostic.location}: {diagnostic.message}", *notes]))
        return True

    def explain(self, error: Exception, text: str = "") -> str:
        """The errors seen, `error` itself, and the line of `text` that they point at."""
        message = "\n".join([*self._errors, str(error)]).strip()
        lines = text.splitlines()
        for match in _LOCATION.finditer(message):
            number = int(match.group(1))
            if number <= len(lines):
                return f"line {number}: {lines[number - 1].strip()}\n{message}"
        return message


def apply_script(text: str, diagnostics: Diagnostics) -> Any:
    """Parse `text` (payload and script), run `@__transform_main`, verify, drop the script.

    Raises:
        StageError: `apply` or `verify`.
    """
    module = _parse(text, diagnostics)
    _interpret(module, module, text, diagnostics)
    for op in list(module.body.operations):
        if op.operation.name.startswith("transform."):
            op.operation.erase()
    if SCHEDULE_ATTRIBUTE in module.operation.attributes:
        del module.operation.attributes[SCHEDULE_ATTRIBUTE]
    return module


def apply_to(payload: str, script: str, diagnostics: Diagnostics) -> Any:
    """Run the script of one module on the payload of another; the payload, verified.

    Raises:
        StageError: `apply` or `verify`; a line that is quoted is one of the script.
    """
    module = _parse(payload, diagnostics, "payload: ")
    _interpret(module, _parse(script, diagnostics), script, diagnostics)
    return module


def _parse(text: str, diagnostics: Diagnostics, what: str = "") -> Any:
    try:
        return ir.Module.parse(text)
    except (ir.MLIRError, ValueError) as error:
        raise StageError("apply", f"{what}{diagnostics.explain(error, text)}") from error


def _interpret(module: Any, sequences: Any, text: str, diagnostics: Diagnostics) -> None:
    """Run the main sequence of one module on another, and verify what comes out.

    Raises:
        StageError: `apply` or `verify`, with the line of `text` that is to blame.
    """
    try:
        main = _main_sequence(sequences)
        interpreter.apply_named_sequence(module.operation, main, sequences.operation)
    except (ir.MLIRError, ValueError) as error:
        raise StageError("apply", diagnostics.explain(error, text)) from error
    try:
        module.operation.verify()
    except (ir.MLIRError, ValueError) as error:
        raise StageError("verify", diagnostics.explain(error, text)) from error


def _main_sequence(module: Any) -> Any:
    for op in module.body.operations:
        operation = op.operation
        if operation.name == "transform.named_sequence":
            name = ir.StringAttr(operation.attributes["sym_name"]).value
            if name == MAIN:
                return operation
    raise ValueError(f"the module has no transform.named_sequence @{MAIN}")


def walk(operation: Any, depth: int = 0) -> Iterator[tuple[Any, int]]:
    """Every operation below `operation` with the number of loops around it."""
    for region in operation.regions:
        for block in region.blocks:
            for op in block.operations:
                inner = op.operation
                yield inner, depth
                yield from walk(inner, depth + (inner.name in LOOPS))


def check_structure(module: Any, columns: int, lanes: int = 0) -> bool:
    """Check that the code is fast by construction: vectors inside, nothing dynamic.

    Args:
        module: the transformed module.
        columns: of the result; with one column there need not be any vector.
        lanes: what the schedule's register step makes of the columns; a vector along the
            rows or the reduction is as a rule shorter, and a shorter one will not do; 0 for
            code that need not multiply.

    Returns:
        Whether vectors are multiplied.

    Raises:
        StageError: `structure`, with the operation that gives it away.
    """
    widest, scalar = 0, None
    for operation, depth in walk(module.operation):
        name = operation.name
        if name in ("memref.alloc", "memref.alloca") and len(operation.operands):
            raise StageError("structure", f"a buffer of dynamic size is left: {operation}")
        if name.startswith("linalg.") and _reduces(operation):
            raise StageError("structure", f"a contraction was not vectorised: {operation}")
        if name in MULTIPLICATIONS:
            kind = operation.results[0].type
            if isinstance(kind, ir.VectorType):
                widest = max(widest, kind.shape[-1])
            elif depth and not isinstance(kind, ir.IndexType):
                scalar = operation
    if scalar is not None and not widest and columns > 1:
        raise StageError("structure", f"loops multiply nothing but scalars: {scalar}")
    if columns > 1 and widest < lanes:
        raise StageError(
            "structure",
            f"vectors of {widest} are multiplied, and the register step has {lanes} columns",
        )
    return widest > 0


def is_vectorised(module: Any) -> bool:
    """Whether vectors are multiplied, or contracted."""
    names = (*MULTIPLICATIONS, "vector.contract", "vector.outerproduct")
    found = (op for op, _ in walk(module.operation) if op.name in names)
    return any(isinstance(op.results[0].type, ir.VectorType) for op in found)


def _reduces(operation: Any) -> bool:
    if "iterator_types" in operation.attributes:
        return "reduction" in str(operation.attributes["iterator_types"])
    return "matmul" in operation.name or "conv" in operation.name
