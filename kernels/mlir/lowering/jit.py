"""LLVM IR to a callable: optimise for this machine, compile in memory, call with arrays."""

import ctypes
import re
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.mlir.lowering.apply import StageError
from tilewise.kernels.mlir.lowering.llvm_text import (
    bf16_as_words,
    in_whole_registers,
    readable_constants,
)

Array = NDArray[Any]
FEATURES = "-prefer-256-bit,-avx512bf16,-avxneconvert"
_POINTER = re.compile(r"\bptr (%\w+)")
REPEATED = "tilewise_repeated"
ALLOCATED = 2  # words of a descriptor before its offset: what was allocated, and the data


@dataclass(frozen=True)
class LoadedCode:
    """Machine code that stays loaded as long as this object lives."""

    engine: Any
    address: int


def compile_ir(text: str, entry: str, effort: int = 3) -> LoadedCode:
    """Compile `text` for this machine and find `entry`; raise StageError `compile`.

    Operands and scratch are assumed not to alias, so stores to C invalidate no loads of A. Scripts
    leave only plain loops (fills, epilogues) to LLVM's vectoriser, which may use 512-bit registers
    and is off for `effort` below 3, for code that is checked and not timed. Instructions on bf16
    are disabled, since LLVM 22 aborts on a bf16 that is loaded into a vector; bf16 are words that
    shifts widen.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    try:
        module = _with_repeats(text, entry)
        machine = llvm.Target.from_default_triple().create_target_machine(
            opt=3,
            cpu=llvm.get_host_cpu_name(),
            features=f"{llvm.get_host_cpu_features().flatten()},{FEATURES}",
        )
        options = llvm.create_pipeline_tuning_options(speed_level=effort)
        options.slp_vectorization = False
        options.loop_vectorization = effort == 3
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
    except (RuntimeError, NameError) as error:
        raise StageError("compile", str(error)) from error
    return LoadedCode(engine, engine.get_function_address(REPEATED))


def _with_repeats(text: str, entry: str) -> Any:
    """Return the module with a function that calls `entry` many times on words in memory.

    It takes the addresses of the words and of the returned value, and the number of calls. The
    timing of short kernels then does not include the cost of entering native code.
    """
    words = bf16_as_words(readable_constants(text))
    if llvm.get_host_cpu_features().get("avx512f"):
        words = in_whole_registers(words)
    module = llvm.parse_assembly(_apart(words, entry))
    function = module.get_function(entry)
    function.add_function_attribute("noinline")
    kinds = [str(argument.type) for argument in function.arguments]
    returned = str(function.global_value_type).partition(" (")[0]
    loads = [
        line
        for index, kind in enumerate(kinds)
        for line in (
            f"  %at{index} = getelementptr i64, ptr %words, i64 {index}",
            f"  %word{index} = load {kind}, ptr %at{index}",
        )
    ]
    passed = ", ".join(f"{kind} %word{index}" for index, kind in enumerate(kinds))
    call = f"call {returned} @{entry}({passed})"
    keep = [f"  %out = {call}", f"  store {returned} %out, ptr %returned"]
    lines = [
        f"declare {returned} @{entry}({', '.join(kinds)})",
        f"define void @{REPEATED}(ptr %words, ptr %returned, i64 %times) {{",
        "start:",
        *loads,
        "  br label %again",
        "again:",
        "  %done = phi i64 [ 0, %start ], [ %next, %again ]",
        *(keep if returned != "void" else [f"  {call}"]),
        "  %next = add i64 %done, 1",
        "  %more = icmp slt i64 %next, %times",
        "  br i1 %more, label %again, label %end",
        "end:",
        "  ret void",
        "}",
    ]
    module.link_in(llvm.parse_assembly("\n".join(lines)))
    return module


def _apart(text: str, entry: str) -> str:
    """Return the module with `noalias` on the pointers that `entry` takes."""
    start = text.find("define ", max(0, text.rfind("\n", 0, text.find(f" @{entry}("))))
    end = text.find("\n", start)
    return text[:start] + _POINTER.sub(r"ptr noalias \1", text[start:end]) + text[end:]


class RepeatedCall:
    """Repeatable calls of a compiled function on C-contiguous arrays, as memref descriptors.

    `likes` have the rank and element type of each memref that it returns.
    """

    def __init__(self, compiled: LoadedCode, arrays: list[Array], *likes: Array) -> None:
        self._words = np.array([word for a in arrays for word in descriptor_words(a)], np.int64)
        sizes = [ALLOCATED + 1 + 2 * like.ndim for like in likes]
        self._starts = [sum(sizes[:number]) for number in range(len(sizes))]
        self._returned = np.zeros(max(sum(sizes), 1), np.int64)
        self._keep = (compiled, arrays)
        self._function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(compiled.address)
        self._addresses = self._words.ctypes.data, self._returned.ctypes.data
        self._likes = likes

    def __call__(self, repeat: int = 1) -> None:
        """Run `repeat` times in one entry, so that short runs can be timed."""
        self._function(*self._addresses, repeat)

    def returned(self, number: int = 0) -> Array:
        """Return a copy of a returned memref; raise ValueError if the function returns nothing."""
        if not self._likes:
            raise ValueError("the function returns nothing to copy")
        kind, rank = self._likes[number].dtype, self._likes[number].ndim
        aligned, offset, *rest = map(int, self._returned[self._starts[number] + 1 :])
        sizes, strides = rest[:rank], rest[rank : 2 * rank]
        reach = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
        memory = (ctypes.c_char * (reach * kind.itemsize)).from_address(aligned)
        flat = np.frombuffer(memoryview(memory).cast("B"), kind)
        steps = tuple(s * kind.itemsize for s in strides)
        return np.lib.stride_tricks.as_strided(flat[offset:], sizes, steps).copy()


def descriptor_words(array: Array) -> list[int]:
    """Return a memref descriptor of an array as the words that a compiled function takes."""
    data = array.ctypes.data
    return [data, data, 0, *array.shape, *(s // array.itemsize for s in array.strides)]
