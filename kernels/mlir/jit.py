"""LLVM IR to a callable: optimise for this machine, compile in memory, call with arrays."""

import ctypes
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from kernels.mlir.apply import StageError

Array = NDArray[Any]
FEATURES = "-prefer-256-bit,-avx512bf16,-avxneconvert"


@dataclass(frozen=True)
class Compiled:
    """Machine code that stays loaded as long as this object lives."""

    engine: Any
    address: int


def compile_ir(text: str, entry: str, effort: int = 3) -> Compiled:
    """Compile `text` for this machine and find `entry`.

    The vectors are already there, so only plain loops (fills, epilogues) are left to
    LLVM's vectoriser, and 512-bit registers are allowed where the machine has them.
    With an `effort` below 3 it stays off, for code that is checked and not timed.
    Instructions on bf16 are not: LLVM 22 ends the process over a bf16 that is loaded and put
    into a vector, and bf16 is widened by shifts as fast.

    Raises:
        StageError: `compile`.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    try:
        module = llvm.parse_assembly(text)
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
    except RuntimeError as error:
        raise StageError("compile", str(error)) from error
    address = engine.get_function_address(entry)
    if not address:
        raise StageError("compile", f"the compiled module has no function {entry}")
    return Compiled(engine, address)


class Call:
    """One call of a compiled function on given arrays, ready to be repeated.

    Args:
        compiled: the function; it takes and returns memref descriptors.
        arrays: the arguments, C-contiguous.
        like: an array of the rank and element type of the memref that it returns.
    """

    def __init__(self, compiled: Compiled, arrays: list[Array], like: Array) -> None:
        rank = like.ndim

        class Descriptor(ctypes.Structure):
            _fields_ = [
                ("allocated", ctypes.c_void_p),
                ("aligned", ctypes.c_void_p),
                ("offset", ctypes.c_int64),
                ("sizes", ctypes.c_int64 * rank),
                ("strides", ctypes.c_int64 * rank),
            ]

        self._keep = (compiled, arrays)
        self._arguments = [word for array in arrays for word in descriptor_words(array)]
        kinds = [type(word) for word in self._arguments]
        self._function = ctypes.CFUNCTYPE(Descriptor, *kinds)(compiled.address)
        self._element = like.dtype

    def __call__(self) -> Any:
        """Run once; the returned descriptor."""
        return self._function(*self._arguments)

    def result(self) -> Array:
        """Run once; a copy of what the returned descriptor points at."""
        out = self()
        sizes, strides = tuple(out.sizes), tuple(out.strides)
        reach = out.offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
        memory = (ctypes.c_char * (reach * self._element.itemsize)).from_address(out.aligned)
        flat = np.frombuffer(memory, self._element)
        bytes_ = tuple(s * self._element.itemsize for s in strides)
        view = np.lib.stride_tricks.as_strided(flat[out.offset :], sizes, bytes_)
        return view.copy()


def descriptor_words(array: Array) -> list[Any]:
    """A memref descriptor of an array, as the words that a compiled function takes."""
    data = ctypes.c_void_p(array.ctypes.data)
    sizes = [ctypes.c_int64(n) for n in array.shape]
    strides = [ctypes.c_int64(s // array.itemsize) for s in array.strides]
    return [data, data, ctypes.c_int64(0), *sizes, *strides]
