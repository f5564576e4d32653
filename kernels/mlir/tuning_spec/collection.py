"""Proven specs of single problems joined into one file."""

import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewise.kernels.errors import LoweringError, ProofError
from tilewise.kernels.mlir.iree.compiler import compiled_text
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.tuning_spec.compiled import FLAG
from tilewise.kernels.mlir.tuning_spec.config import Configuration
from tilewise.kernels.mlir.tuning_spec.text import (
    Entry,
    has_epilogue,
    marks_in,
    matcher_key,
    spec_text,
)
from tilewise.kernels.problem import Problem, parse_problem

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
