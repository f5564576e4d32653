"""Apply a script with MLIR's own interpreter, and report errors with the lines they name."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from iree.compiler import ir
from iree.compiler.dialects.transform import interpreter
from iree.compiler.passmanager import PassManager

MAIN = "__transform_main"
SCHEDULE_ATTRIBUTE = "transform.with_named_sequence"
SCRIPT, PAYLOAD = "-", "payload"
"""The files in MLIR's locations: parsed text, and that of a separate payload."""
_PLAIN = re.compile(r'loc\("-":(\d+):(\d+)\)')
_LOCATION = re.compile(r'"([^"]*)":(\d+):(\d+)')


class StageError(Exception):
    """A stage of proving a script failed; `failure` is one of `proof.FAILURES`."""

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

    def explain(self, error: Exception, text: str = "", payload: str = "") -> str:
        """Return the errors, `error` itself, and the lines of both texts that they name."""
        message = "\n".join([*self._errors, str(error)]).strip()
        sources = {
            SCRIPT: ("", text.splitlines()),
            PAYLOAD: (" of the payload", payload.splitlines()),
        }
        quoted = []
        for file, row, _ in _LOCATION.findall(message):
            where, lines = sources.pop(file, ("", []))
            if int(row) <= len(lines):
                quoted.append(f"line {row}{where}: {lines[int(row) - 1].strip()}")
        return "\n".join([*quoted, message])

    @contextmanager
    def stage(self, failure: str, *texts: str, what: str = "") -> Iterator[None]:
        """Turn an error of MLIR into a `StageError`, whose message begins with `what`."""
        try:
            yield
        except (ir.MLIRError, ValueError, RuntimeError) as error:
            raise StageError(failure, f"{what}{self.explain(error, *texts)}") from error


def run_passes(module: Any, *pipelines: str) -> None:
    """Run pipelines of passes on a module."""
    for pipeline in pipelines:
        PassManager.parse(pipeline).run(module.operation)


def apply_script(text: str, diagnostics: Diagnostics) -> Any:
    """Parse `text` (payload and script), run `@__transform_main`, verify, drop the script."""
    with diagnostics.stage("apply", text):
        module = ir.Module.parse(text)
    _interpret(module, module, diagnostics, text)
    for op in list(module.body.operations):
        if op.operation.name.startswith("transform."):
            op.operation.erase()
    if SCHEDULE_ATTRIBUTE in module.operation.attributes:
        del module.operation.attributes[SCHEDULE_ATTRIBUTE]
    return module


def apply_to(
    payload: str, script: str, diagnostics: Diagnostics, has_own_locations: bool = False
) -> Any:
    """Run the script of one module on the payload of another; return the payload, verified.

    With `has_own_locations`, locations in the payload name it. Raise StageError `apply` or `verify`
    with the lines of both that MLIR names.
    """
    with diagnostics.stage("apply", payload, what="payload: "):
        module = ir.Module.parse(payload)
    if has_own_locations:
        module.operation.walk(_located_in_payload)
    with diagnostics.stage("apply", script):
        sequences = ir.Module.parse(script)
    _interpret(module, sequences, diagnostics, script, payload)
    return module


def _located_in_payload(operation: Any) -> Any:
    """Name the payload in an operation's location, which otherwise names no file."""
    if found := _PLAIN.fullmatch(str(operation.location)):
        operation.location = ir.Location.file(PAYLOAD, int(found[1]), int(found[2]))
    return ir.WalkResult.ADVANCE


def _interpret(module: Any, sequences: Any, diagnostics: Diagnostics, *texts: str) -> None:
    """Run the main sequence of one module on another, and verify the result."""
    with diagnostics.stage("apply", *texts):
        main = _main_sequence(sequences)
        interpreter.apply_named_sequence(module.operation, main, sequences.operation)
    with diagnostics.stage("verify", *texts):
        module.operation.verify()


def _main_sequence(module: Any) -> Any:
    for op in module.body.operations:
        operation = op.operation
        if operation.name == "transform.named_sequence":
            name = ir.StringAttr(operation.attributes["sym_name"]).value
            if name == MAIN:
                return operation
    raise ValueError(f"the module has no transform.named_sequence @{MAIN}")
