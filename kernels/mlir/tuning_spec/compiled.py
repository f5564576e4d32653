"""A problem compiled by IREE with the sizes of a configuration, kept for the process that runs it.

A spec that matches nothing is no error to IREE, and what runs then is its default. So the ops are
looked at after the spec was asked, in the same compilation: without the mark there is no code.


Proven specs of single problems joined into one file.
"""

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tilewise.kernels.errors import CompilerError, LoweringError, ProofError
from tilewise.kernels.mlir.iree.compiler import compile_module, compiled_text
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.tuning_spec.config import Configuration
from tilewise.kernels.mlir.tuning_spec.text import (
    Entry,
    has_epilogue,
    marks_in,
    matcher_key,
    spec_text,
)
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.system.cache_folder import cache_dir, write_whole
from tilewise.kernels.system.regular_file import read_regular
from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.target.model import Target

FLAG = "--iree-codegen-tuning-spec-path="
DUMP = "--iree-hal-dump-executable-configurations-to="
COMPILE_LIMIT_S = 20.0
MOST_KEPT = 512  # modules; one is some ten kilobytes


def spec_code(problem: Problem, config: Configuration, target: Target) -> bytes:
    """IREE's code of a problem with a configuration; from the cache folder where it is kept.

    Raises:
        UnsupportedError: no spec covers the problem.
        ScheduleError: the configuration is not of the problem's loops.
        LoweringError: it does not compile, or IREE did not take the sizes.
        CompilerAbsentError: IREE's compiler is not installed.
    """
    text = spec_text([Entry(problem, config)])
    said = f"{identity()} {target.canonical} {problem.canonical} {text}"
    path = cache_dir() / "specs" / f"{hashlib.sha256(said.encode()).hexdigest()[:32]}.vmfb"
    with suppress(OSError):
        return read_regular(path)
    code = compile_with(text, problem)
    with suppress(OSError):  # a full or read-only folder keeps nothing
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, code)
        _drop_oldest(path.parent)
    return code


def compile_with(text: str, problem: Problem, seconds: float = COMPILE_LIMIT_S) -> bytes:
    """IREE's code of a problem with a spec, which has to have matched it.

    Raises:
        LoweringError: it does not compile within `seconds`, or IREE did not take the sizes.
        CompilerAbsentError: IREE's compiler is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        spec = Path(folder) / "spec.mlir"
        spec.write_text(text)
        flags = (f"{FLAG}{spec}", f"{DUMP}{folder}/configured")
        try:
            code = compile_module(module_text(problem), flags, seconds)
        except CompilerError as error:
            raise LoweringError(f"{problem}: {error}") from error
        seen = [path.read_text() for path in Path(folder).glob("configured/*.mlir")]
    if not any(marks_in(one) for one in seen):
        raise LoweringError(f"{problem}: IREE did not take the sizes: no op matched")
    return code


def _drop_oldest(folder: Path) -> None:
    """Hold the folder to `MOST_KEPT` modules."""
    kept = list(folder.glob("*.vmfb"))
    if len(kept) <= MOST_KEPT:
        return
    with suppress(OSError):  # another process may drop them first
        for path in sorted(kept, key=lambda one: one.stat().st_mtime)[: MOST_KEPT // 4]:
            path.unlink()


_LINE = re.compile(r"// (\w+): +(.*)")
_TOLD = ("speed", "beside")


@dataclass(frozen=True)
class LeftOut:
    """A problem without an entry, and why."""

    problem: str
    reason: str


def entry_of(script: str) -> Entry:
    """The entry of a proven spec of one problem, from its header.

    Raises:
        ProofError: the text is no such spec.
    """
    lines = [(m[1], m[2]) for m in map(_LINE.fullmatch, script.splitlines()) if m]
    known = dict(reversed(lines))
    try:
        problem = parse_problem(known["problem"])
        config = Configuration.from_json(json.loads(known["steps"]))
    except (KeyError, ValueError) as error:
        raise ProofError(f"no spec of one problem: its header lacks {error}") from error
    told = tuple(f"{name}: {value}" for name, value in lines if name in _TOLD)
    return Entry(problem, config, told)


def joined(entries: Sequence[Entry], told: Sequence[str] = ()) -> tuple[str, list[LeftOut]]:
    """One spec of several problems, and those whose op another entry takes.

    Problems that differ in their weights alone, or in what their epilogue does, are the same op.
    """
    kept: dict[tuple[str, bool], Entry] = {}
    left_out = []
    for entry in entries:
        key = matcher_key(entry.problem), has_epilogue(entry.problem)
        first = kept.setdefault(key, entry)
        if first is not entry:
            reason = f"its op is matched by the entry of {first.problem}"
            left_out.append(LeftOut(entry.problem.canonical, reason))
    return spec_text(list(kept.values()), told), left_out


def check_matched(spec: str, problems: Sequence[Problem]) -> None:
    """Raise unless each problem's op gets its sizes from its own entry.

    Raises:
        LoweringError: one does not; the message names it.
        CompilerAbsentError, CompilerError: IREE's compiler is not installed, or refused the spec.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.mlir"
        path.write_text(spec)
        for problem in problems:
            seen = compiled_text(
                module_text(problem), "executable-configurations", (f"{FLAG}{path}",)
            )
            if marks_in(seen) != [problem.canonical]:
                found = ", ".join(marks_in(seen)) or "nothing"
                raise LoweringError(f"{problem}: its op was matched by {found}")
