"""Passes as LLVM's modules without Numba: nothing in them raises, asks for Python, or allocates.

Numba compiles a pass to a function that reports errors to its caller and another, for C, that turns
them into Python's. Passes have no errors to report. So what the first one stores about errors is
dropped, and one of ours calls it.
"""

import re

import llvmlite.binding as llvm
from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.object_code import optimise
from tilewise.kernels.native.objects.features import used_features
from tilewise.kernels.native.objects.module import machine
from tilewise.kernels.native.passes.passes import pass_of
from tilewise.kernels.native.passes.rows.emit import emit
from tilewise.kernels.native.passes.rows.program import RowProgram
from tilewise.kernels.native.programs.steps import Parametric, Pass
from tilewise.kernels.target.model import Target

OF_C = frozenset({
    "memcpy", "memmove", "memset", "expf", "exp", "logf", "log", "erff", "erf", "tanhf", "tanh",
    "powf", "pow", "sqrtf", "sqrt", "sched_yield",
})  # fmt: skip
"""What code may call of the C library."""
_STORED_ERROR = re.compile(r"^  store ptr @\.const\.picklebuf[^\n]*\n", re.MULTILINE)
_WRAPPER = "cfunc."


def pass_object(one: Parametric, symbol: str, target: Target) -> tuple[bytes, tuple[str, ...]]:
    """The object of a pass, and what its code uses of the processor.

    Args:
        one: the pass.
        symbol: of its function, `void symbol(int64_t parameters)`.
        target: the machine that it is for.

    Raises:
        LoweringError: it would call what a program on its own has not.
    """
    is_written = isinstance(one, RowProgram)
    text = _row_text(one, symbol, target) if isinstance(one, RowProgram) else _text(one, symbol)
    features = used_features(target.features, text)
    made = machine(features)
    module = llvm.parse_assembly(text)
    for held in (*module.functions, *module.global_variables):
        if not held.is_declaration and held.name != symbol:
            held.linkage = "internal"
    module.triple, module.data_layout = made.triple, str(made.target_data)
    optimise(module, made, "none" if is_written else "level 3")
    called = {function.name for function in module.functions if function.is_declaration}
    lacking = {name for name in called if not name.startswith("llvm.")} - OF_C
    if lacking:
        raise LoweringError(f"{one} calls {min(lacking)}, which no program has")
    return bytes(made.emit_object(module)), features


def _row_text(one: RowProgram, symbol: str, target: Target) -> str:
    """The IR of a row program."""
    module = ir.Module(symbol)
    emit(module, one, name=symbol, has_fma=target.has_fma)
    return str(module)


def _text(one: Pass, symbol: str) -> str:
    """The IR that Numba made of a pass, without what it stores about errors."""
    made = pass_of(one.name).owner
    wrapper: str = made.native_name
    text = _STORED_ERROR.sub("", str(made.inspect_llvm()))
    module = llvm.parse_assembly(text)
    module.link_in(llvm.parse_assembly(_caller(symbol, wrapper.removeprefix(_WRAPPER))))
    return str(module)


def _caller(symbol: str, inner: str) -> str:
    return f"""
declare i32 @{inner}(ptr, ptr, i64)
define void @{symbol}(i64 %at) {{
  %result = alloca ptr
  %error = alloca ptr
  %status = call i32 @{inner}(ptr %result, ptr %error, i64 %at)
  ret void
}}
"""
