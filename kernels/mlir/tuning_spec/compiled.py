"""Compile problems by IREE with specs, and check that the specs matched.

IREE silently uses its defaults when no spec matches. The ops are therefore inspected after the spec
was applied, in the same compilation; without the mark there is no code.
"""

import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tilewise.kernels.errors import CompilerError, LoweringError
from tilewise.kernels.mlir.iree.compiler import compile_module, compiled_text
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.tuning_spec.config import Configuration
from tilewise.kernels.mlir.tuning_spec.text import SpecEntry, marks_in, spec_text
from tilewise.kernels.problem import Problem
from tilewise.kernels.system.files import cache_dir, keep, kept
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target.model import Target

FLAG = "--iree-codegen-tuning-spec-path="
DUMP = "--iree-hal-dump-executable-configurations-to="
COMPILE_LIMIT_S = 20.0
MOST_BYTES = 8 << 20  # of cached modules; one is some ten kilobytes


def spec_code(problem: Problem, config: Configuration, target: Target) -> bytes:
    """Return IREE's code of a problem with a configuration, cached in the cache folder.

    Raises:
        UnsupportedError: no spec covers the problem.
        ScheduleError: the configuration does not fit the problem's loops.
        LoweringError: it does not compile, or IREE ignored the sizes.
        CompilerAbsentError: IREE's compiler is not installed.
    """
    text = spec_text([SpecEntry(problem, config)])
    key = f"{identity()} {target.canonical} {problem.canonical} {text}"
    path = cache_dir() / "specs" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.vmfb"
    code = kept(path)
    if code is None:
        code = compile_with(text, problem)
        keep(path, code, MOST_BYTES)
    return code


def compile_with(text: str, problem: Problem, seconds: float = COMPILE_LIMIT_S) -> bytes:
    """Return IREE's code of a problem with a spec; raise LoweringError if no op matched."""
    with _spec_file(text) as spec:
        flags = (f"{FLAG}{spec}", f"{DUMP}{spec.parent}/configured")
        try:
            code = compile_module(module_text(problem), flags, seconds)
        except CompilerError as error:
            raise LoweringError(f"{problem}: {error}") from error
        seen = [path.read_text() for path in spec.parent.glob("configured/*.mlir")]
    if not any(marks_in(one) for one in seen):
        raise LoweringError(f"{problem}: IREE did not take the sizes: no op matched")
    return code


def check_matched(spec: str, problems: Sequence[Problem]) -> None:
    """Raise LoweringError unless each problem's op gets its sizes from its own entry."""
    with _spec_file(spec) as path:
        for problem in problems:
            flags = (f"{FLAG}{path}",)
            seen = marks_in(compiled_text(module_text(problem), "executable-configurations", flags))
            if seen != [problem.canonical]:
                found = ", ".join(seen) or "nothing"
                raise LoweringError(f"{problem}: its op was matched by {found}")


@contextmanager
def _spec_file(text: str) -> Iterator[Path]:
    """Yield the path of a spec in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.mlir"
        path.write_text(text)
        yield path
