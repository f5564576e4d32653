"""Row programs as passes, compiled once and kept between processes."""

import functools

from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import object_code
from tilewise.kernels.native.passes.passes import CompiledPass
from tilewise.kernels.native.passes.rows.emit import emit
from tilewise.kernels.native.passes.rows.program import RowProgram
from tilewise.kernels.target import detect


@functools.lru_cache(maxsize=256)
def row_pass(program: RowProgram) -> CompiledPass:
    """Return the pass of a program; raise LoweringError if code generation fails."""
    has_fma = detect().has_fma

    def code(module: ir.Module) -> list[ir.Function]:
        return [emit(module, program, has_fma=has_fma)]

    try:
        owner = Loaded(object_code(repr(program), code, "none"))
    except Exception as error:
        raise LoweringError(f"compiling {program} failed: {error}") from error
    return CompiledPass(owner.addresses[0], owner)
