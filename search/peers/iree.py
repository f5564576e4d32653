"""IREE compiled for this processor, in its default mode and with data tiling.

Buffers are read and written in place. The cost of a call (about 5 us) is part of the measurement,
as it is for every user.
"""

from dataclasses import replace
from functools import lru_cache

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.dispatches.library import library_text
from tilewise.kernels.errors import (
    CompilerAbsentError,
    CompilerError,
    KernelsError,
    UnsupportedError,
)
from tilewise.kernels.mlir.iree.compiler import DATA_TILING, compile_module
from tilewise.kernels.mlir.iree.module_text import SCOPE, argument_names, module_text
from tilewise.kernels.mlir.iree.runtime import LoadedModule, Parameters, open_device, runtime
from tilewise.kernels.mlir.payload.function import ENTRY
from tilewise.kernels.oracle.operands import Operands, empty_aligned, operand_type
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target.model import Target
from tilewise.search.peers.variant import PeerAbsentError, Variant

VARIANTS = {"default": (), "data tiling": (DATA_TILING,)}
_compiled = lru_cache(8)(compile_module)  # each copy of the operands has the same code


def variants(problem: Problem, operands: Operands, threads: int) -> list[Variant]:
    """Return IREE's default and its data tiling, as far as they compile.

    Raises PeerAbsentError if IREE is not installed or cannot compile the problem.
    """
    made, refused = [], []
    try:
        runtime()
        text = module_text(problem)
        for name, flags in VARIANTS.items():
            try:
                code = _compiled(text, flags)
            except CompilerError as error:
                refused.append(f"{name}: {error}")
                continue
            made.append(bound(code, problem, operands, threads, name))
    except (CompilerAbsentError, UnsupportedError) as error:
        raise PeerAbsentError(str(error)) from error
    if not made:
        raise PeerAbsentError("; ".join(refused))
    return made


def version() -> str:
    """Return a text such as `IREE 3.13.0 (runtime 3.13.0)`."""
    from importlib import metadata

    return (
        f"IREE {metadata.version('iree-base-compiler')} "
        f"(runtime {metadata.version('iree-base-runtime')})"
    )


def bound(
    code: bytes, problem: Problem, operands: Operands, threads: int, name: str, peer: str = "iree"
) -> Variant:
    """Bind a problem's compiled module to its operands."""
    weights = Parameters(SCOPE, {"B": operands["B"]}) if problem.has_constant_weights else None
    out = operands["C"]
    if problem.accumulates:  # C is read again by every run, so the sum goes elsewhere
        out = empty_aligned(out.shape, out.dtype.type)
    read = [(operands[given], operand_type(problem, given)) for given in argument_names(problem)]
    module = LoadedModule(code, open_device(threads), weights)
    run = module.bind(ENTRY, [*read, (out, operand_type(problem, "C"))])
    return Variant(peer, name, run, lambda: out)


NAMES = {"default": "iree", "data tiling": "iree-dt"}
"""What the modes are called in results, by their names as ways of the peer `iree`."""


def modes(problem: Problem, operands: Operands, threads: int) -> list[Variant]:
    """Return both modes as far as they compile; none without IREE."""
    try:
        ways = variants(problem, operands, threads)
    except PeerAbsentError:
        return []
    return [replace(way, peer=NAMES[way.name]) for way in ways]


NAME, WAY = "iree+tilewise", "library"


class Maker:
    """Makes the way of this peer for one schedule."""

    def __init__(self, schedule: Schedule, target: Target) -> None:
        self.schedule, self._target = schedule, target

    def variants(self, problem: Problem, operands: Operands, threads: int) -> list[Variant]:
        """Return IREE's code with the kernel in it, bound to operands.

        Raises PeerAbsentError if IREE is not installed or replaced nothing.
        """
        try:
            runtime()
            code = _with_kernel(problem, self.schedule, self._target)
        except KernelsError as error:
            raise PeerAbsentError(str(error)) from error
        return [bound(code, problem, operands, threads, WAY, NAME)]


@lru_cache(8)
def _with_kernel(problem: Problem, schedule: Schedule, target: Target) -> bytes:
    library = library_text([LibraryEntry(problem, schedule)], target)
    made = compiled_with(module_text(problem), library)
    if not made.kernels:
        raise PeerAbsentError("no pattern of the library matched the problem in IREE")
    return made.code
