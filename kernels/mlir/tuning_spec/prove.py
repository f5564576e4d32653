"""Prove a spec: compile, check that it matched, run, compare, and time it against IREE's modes.

A spec that is slower than the faster of these modes does not prove.
"""

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tilewise.kernels.errors import CompilerError, LoweringError
from tilewise.kernels.mlir.iree.compiler import DATA_TILING, compile_module
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.proof.proof import ScriptProof, by_lines, found_lines, run_child
from tilewise.kernels.mlir.transform.module import mlir_version
from tilewise.kernels.mlir.tuning_spec.compiled import compile_with
from tilewise.kernels.mlir.tuning_spec.config import Configuration
from tilewise.kernels.mlir.tuning_spec.text import SpecEntry, spec_text
from tilewise.kernels.problem import Problem
from tilewise.kernels.target import detect

CHILD = "tilewise.kernels.mlir.tuning_spec.child"
REPEAT_SECONDS = 0.3
MODES = {"default": (), "data tiling": (DATA_TILING,)}


def prove(
    problem: Problem,
    config: Configuration,
    *,
    threads: int = 1,
    seed: int = 0,
    seconds: float = 60.0,
    memory_bytes: int = 4 << 30,
) -> ScriptProof:
    """Emit the spec of one problem and prove it; the proof's script has its header filled in.

    `seconds` limits the whole proof, `memory_bytes` the process that runs the code.

    Raises:
        UnsupportedError: no spec covers the problem.
        ScheduleError: the configuration does not fit the problem's loops.
    """
    until = time.monotonic() + seconds
    script = spec_text([SpecEntry(problem, config)])
    known = ScriptProof(mlir=mlir_version(), script=script)
    begin = time.perf_counter()
    try:
        code = compile_with(script, problem, seconds)
    except LoweringError as error:
        failure = "apply" if "did not take" in str(error) else "compile"
        return replace(known, failure=failure, message=str(error))
    known = replace(known, applied=True, compile_s=time.perf_counter() - begin)
    try:
        modules = {"spec": code} | _modes(problem, until)
    except TimeoutError as error:
        return replace(known, failure="timeout", message=str(error))
    with tempfile.TemporaryDirectory() as folder:
        for name, one in modules.items():
            (Path(folder) / f"{name}.vmfb").write_bytes(one)
        request = {
            "problem": problem.canonical,
            "folder": folder,
            "modules": list(modules),
            "threads": threads,
            "seed": seed,
            "seconds": max(1.0, until - time.monotonic()),
            "memory_bytes": memory_bytes,
            "repeat_s": REPEAT_SECONDS,
        }
        found = run_child(request, CHILD)
    found = replace(found, applied=True, compile_s=known.compile_s)
    proof = ScriptProof.of(found, mlir=known.mlir, script=script)
    target = replace(detect(), kind="iree", threads=threads).canonical
    # `outline` holds the child's lines on the speeds of the modes.
    return replace(proof, script=proven_spec(problem, config, proof, found.outline, target))


def _modes(problem: Problem, until: float) -> dict[str, bytes]:
    """Return the code of the modes that compile; raise TimeoutError if one takes too long."""
    found: dict[str, bytes] = {}
    for name, flags in MODES.items():
        left = until - time.monotonic()
        try:
            found[name] = compile_module(module_text(problem), flags, max(0.1, left))
        except CompilerError as error:
            if time.monotonic() >= until:
                raise TimeoutError(f"no time to compare with IREE's {name}: {error}") from error
    return found


def proven_spec(
    problem: Problem,
    config: Configuration,
    proof: ScriptProof,
    modes: Sequence[str],
    target: str,
    by: str | None = None,
) -> str:
    """Return the spec with the proof in its header.

    `modes` are lines on the speeds of IREE's own modes; `by` names the machine that reports the
    proof, None for this one.
    """
    found = found_lines(proof, modes)
    if proof.ok and proof.interval is not None:
        found.append(f"steps:    {json.dumps(config.to_json())}")
    lines = [
        f"problem:  {problem.canonical}",
        *found,
        f"target:   {target}",
        f"mlir:     {proof.mlir}",
        *by_lines(by),
    ]
    return spec_text([SpecEntry(problem, config)], lines)
