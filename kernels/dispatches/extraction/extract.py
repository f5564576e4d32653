"""Read a module's ops as patterns of their problems, in a limited child process."""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tilewise.kernels.dispatches.library import FLAG, Cuts, prelude_text
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.mlir.frontend.dims import DimRange
from tilewise.kernels.mlir.frontend.read import ReadLimits, ask_of_file
from tilewise.kernels.mlir.iree.compiler import SHORT_VALUES, compiled_text
from tilewise.kernels.problem import Accuracy, parse_any
from tilewise.kernels.system.typed_json import from_json, to_json

CHILD = "tilewise.kernels.dispatches.extraction.child"
_COMPILED_FILE = re.compile(r'"[^"\n]*/module\.mlir":')


@dataclass(frozen=True)
class Cut:
    """One op of a module that is a problem, or should have been.

    `problem` is a range in a module with a dynamic dim, and empty if there is none for all sizes.
    `pattern` is None where none can be extracted. `whole` is the problem with all that surrounds
    the op where no pattern includes that, and `narrow` that of the integers that ops before it
    widen or dequantise; else both are empty.
    """

    problem: str
    where: str
    pattern: Pattern | None = None
    reason: str = ""
    whole: str = ""
    narrow: str = ""

    def with_accuracy(self, accuracy: Accuracy) -> "Cut":
        """Return the op with a problem of another accuracy, which modules do not specify."""
        problem, whole, narrow = (
            parse_any({**parse_any(one).to_json(), "accuracy": accuracy}).canonical if one else ""
            for one in (self.problem, self.whole, self.narrow)
        )
        return replace(self, problem=problem, whole=whole, narrow=narrow)


def cut_module(
    module: bytes, seconds: float = 120.0, dim: DimRange | None = None
) -> tuple[Cut, ...]:
    """Return the problems of a module with their patterns, as IREE will see them, and other ops.

    All dynamic dims of arguments have the sizes of `dim`.

    Raises:
        ModuleError: the module could not be read.
        CompilerError: IREE does not preprocess it within `seconds`, or is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        prelude, seen = Path(folder) / "prelude.mlir", Path(folder) / "seen.mlir"
        prelude.write_text(prelude_text())
        flags = (f"{FLAG}={prelude}", *SHORT_VALUES, "--mlir-print-debuginfo")
        text = compiled_text(module, "preprocessing", flags, seconds)
        seen.write_text(_COMPILED_FILE.sub('"-":', text))  # places are those of the module's text
        more = {"dim": to_json(dim) if dim else None}
        reply = ask_of_file(seen, ReadLimits(seconds), more, CHILD)
    return tuple(from_json(Cut, one) for one in reply["cuts"])


def patterns_of(cuts: Sequence[Cut]) -> Cuts:
    """Return the distinct patterns of each problem, as `library_text` takes them."""
    found: dict[str, dict[str, Pattern]] = {}
    for cut in cuts:
        if cut.pattern is not None:
            found.setdefault(cut.problem, {})[cut.pattern.text] = cut.pattern
    return {problem: tuple(patterns.values()) for problem, patterns in found.items()}
