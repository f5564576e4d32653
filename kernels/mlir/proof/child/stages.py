"""What every child that proves something shares: its limits, its stages, and its one reply."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewise.kernels.mlir.proof.found import Found
from tilewise.kernels.system.limited_child import reply_to_request, stage
from tilewise.kernels.system.typed_json import to_json


def serve(answer: Callable[[dict[str, Any]], Found]) -> None:
    """Read one request, and write what `answer` makes of it within the request's limits."""
    reply_to_request(lambda request: dict(to_json(answer(request))))


class Finding:
    """What a child establishes step by step, kept when it fails.

    Attributes:
        found: what is known so far.
    """

    def __init__(self) -> None:
        self.found = Found()
        self._processor = 0.0

    def note(self, **parts: Any) -> None:
        """Take in attributes of `Found` that are known now."""
        self.found = replace(self.found, **parts)

    def apply(self, applied: Callable[[], Any]) -> Any:
        """The module that `applied` makes; that it could, and how long it took."""
        self._processor = time.process_time()
        begin = stage("apply")
        module = applied()
        self.note(applied=True, apply_s=time.perf_counter() - begin)
        return module

    def compile(self, lowered: Callable[[], Any], effort: int = 3) -> Any:
        """The machine code of what `lowered` gives, and the scratch buffers that it takes."""
        from tilewise.kernels.mlir.lowering.jit import compile_ir
        from tilewise.kernels.mlir.payload.function import ENTRY

        begin = stage("lower")
        text, scratch = lowered()
        self.note(lower_s=time.perf_counter() - begin)
        begin = stage("compile")
        compiled = compile_ir(text, ENTRY, effort)
        self.note(
            compile_s=time.perf_counter() - begin,
            processor_s=time.process_time() - self._processor,
        )
        return compiled, scratch


def establish(steps: Callable[[Finding, Any], None]) -> Found:
    """Run `steps` in an MLIR context; what they found, and why they stopped if they did.

    Args:
        steps: takes what is found so far and the context's `Diagnostics`.
    """
    stage("import")
    from iree.compiler import ir

    from tilewise.kernels.mlir.dialects import without_definitions
    from tilewise.kernels.mlir.lowering.apply import Diagnostics, StageError

    without_definitions()
    finding = Finding()
    try:
        with ir.Context() as context, ir.Location.unknown():
            steps(finding, Diagnostics(context))
    except StageError as error:
        finding.note(failure=error.failure, message=str(error))
    except MemoryError:
        finding.note(failure="memory", message="out of memory")
    return finding.found
