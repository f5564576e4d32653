"""Passes as LLVM's modules without Numba: nothing in them raises, asks for Python, or allocates.

Numba compiles a pass to a function that reports errors to its caller and another, for C, that turns
them into Python's. Passes have no errors to report. So what the first one stores about errors is
dropped, and one of ours calls it.
"""

import re

import llvmlite.binding as llvm

from kernels.errors import LoweringError
from kernels.native.jit.object_code import optimise
from kernels.native.passes.passes import pass_of
from kernels.native.programs.steps import Pass

OF_C = frozenset({
    "memcpy", "memmove", "memset", "expf", "exp", "logf", "log", "erff", "erf", "tanhf", "tanh",
    "powf", "pow", "sqrtf", "sqrt", "sched_yield",
})  # fmt: skip
"""What code may call of the C library."""
_STORED_ERROR = re.compile(r"^  store ptr @\.const\.picklebuf[^\n]*\n", re.MULTILINE)
_WRAPPER = "cfunc."


def pass_text(one: Pass) -> str:
    """The IR that Numba made of a pass, without what it stores about errors."""
    return _STORED_ERROR.sub("", str(pass_of(one.name).owner.inspect_llvm()))


def pass_object(one: Pass, symbol: str, machine: llvm.TargetMachine) -> bytes:
    """The object of a pass.

    Args:
        one: the pass.
        symbol: of its function, `void symbol(int64_t parameters)`.
        machine: that its code is for.

    Raises:
        LoweringError: it would call what a program on its own has not.
    """
    wrapper: str = pass_of(one.name).owner.native_name
    inner = wrapper.removeprefix(_WRAPPER)
    module = llvm.parse_assembly(pass_text(one))
    module.link_in(llvm.parse_assembly(_caller(symbol, inner)))
    for held in (*module.functions, *module.global_variables):
        if not held.is_declaration and held.name != symbol:
            held.linkage = "internal"
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    optimise(module, machine, "level 3")
    called = {function.name for function in module.functions if function.is_declaration}
    lacking = {name for name in called if not name.startswith("llvm.")} - OF_C
    if lacking:
        raise LoweringError(f"pass {one.name} calls {min(lacking)}, which no program has")
    return bytes(machine.emit_object(module))


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
