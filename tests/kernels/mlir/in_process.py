"""What children do, asked of this process: each start of one takes 0.3 s and more.

That children are started, watched and ended, and what becomes of those that die, have tests of
their own, which start them; so have commands and services.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from tempfile import TemporaryFile
from threading import RLock
from typing import IO, Any

import pytest

from tilewise.kernels.system.limited_child import Ended, check_limits, run_limited

ANSWERS = {
    "tilewise.kernels.dispatches.extraction.child": "answer",
    "tilewise.kernels.mlir.air.child": "prove_here",
    "tilewise.kernels.mlir.frontend.child.read": "answer",
    "tilewise.kernels.mlir.op_scripts.child": "prove_here",
    "tilewise.kernels.mlir.proof.child.prove": "answer",
}
_ONE_ERROR_OUTPUT = RLock()
"""Threads of a test take turns: a process has one standard error."""


def answered_here(request: dict[str, Any], module: str) -> Ended:
    """What a fresh child that runs `module` would answer, by the same function."""
    if module not in ANSWERS:
        return run_limited(request, module)
    from tilewise.kernels.mlir.proof.proof import ProofReply
    from tilewise.kernels.system.typed_json import to_json

    check_limits(request["seconds"], request["memory_bytes"])
    with _ONE_ERROR_OUTPUT, TemporaryFile("w+", errors="replace") as errors, _stderr_in(errors):
        reply = getattr(import_module(module), ANSWERS[module])(json.loads(json.dumps(request)))
        errors.seek(0)
        printed = errors.read()
    found = to_json(reply) if isinstance(reply, ProofReply) else reply
    return Ended(json.loads(json.dumps(found)), printed=printed)


@contextmanager
def _stderr_in(file: IO[str]) -> Iterator[None]:
    """Write to a file what this process prints on standard error, its native code too."""
    own = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        with redirect_stderr(file):
            yield
    finally:
        os.dup2(own, 2)
        os.close(own)


@contextmanager
def without_children() -> Iterator[None]:
    """Answer here what is read of modules, cut out of them, and proven of scripts."""
    from tilewise.kernels.mlir.frontend import read
    from tilewise.kernels.mlir.proof import proof

    with pytest.MonkeyPatch.context() as patch:
        for module in (read, proof):
            patch.setattr(module, "run_limited", answered_here)
        yield


@pytest.fixture(scope="module", autouse=True)
def read_here() -> Iterator[None]:
    """What a child reads of a module is tested in tests/kernels/mlir."""
    with without_children():
        yield
