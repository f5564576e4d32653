"""IREE's runtime: a module loaded on a device of this process and bound to arrays.

Calls are the fastest that the Python runtime offers: imported arrays, results in given arrays, one
`invoke` per run. Its cost of some 5 us is part of what is measured.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.kernels.errors import CompilerAbsentError
from tilewise.kernels.oracle.operands import Array, empty_aligned

ELEMENTS = {
    "f32": "FLOAT_32", "f64": "FLOAT_64", "f16": "FLOAT_16", "bf16": "BFLOAT_16",
    "i8": "SINT_8", "u8": "SINT_8", "i32": "SINT_32", "i64": "SINT_64",
}  # fmt: skip
"""The runtime's name of each dtype."""


@dataclass(frozen=True)
class Parameters:
    """Values loaded together with a module, such as weights, as `scope` and names."""

    scope: str
    arrays: Mapping[str, Array]


class LoadedModule:
    """A compiled module on a device."""

    def __init__(self, code: bytes, device: Any, parameters: Parameters | None = None) -> None:
        rt = runtime()
        instance = rt.VmInstance()
        modules = [rt.create_hal_module(instance, device)]
        if parameters is not None:
            index = rt.ParameterIndex()
            for name, array in parameters.arrays.items():
                rt.parameter_index_add_numpy_ndarray(index, name, array)
            provider = index.create_provider(parameters.scope)
            modules.append(rt.create_io_parameters_module(instance, provider))
        self._device, self._parameters = device, parameters  # whose arrays nobody else may hold
        self._module = rt.VmModule.copy_buffer(instance, code)
        self._context = rt.VmContext(instance, [*modules, self._module])

    def bind(
        self, entry: str, arguments: Sequence[tuple[Array, str]], results: int = 1
    ) -> Callable[[int], None]:
        """Return a function that runs `entry` a number of times on the caller's arrays, in place.

        `arguments` are arrays with their dtype or the runtime's name of it, also for the result
        (`iree.abi.output`); `results` is how many values the function returns.
        """
        rt = runtime()
        function = self._module.lookup_function(entry)
        given = self._given(arguments)
        kept = [array for array, _ in arguments]  # what is imported points into them

        def run(repeat: int, _kept: object = kept) -> None:
            for _ in range(repeat):
                self._context.invoke(function, given, rt.VmVariantList(results))

        return run

    def functions(self) -> list[str]:
        """Return the names of the functions that it exports."""
        return list(self._module.function_names)

    def declaration(self, entry: str) -> str | None:
        """Return a declaration such as `sync func @main(%input0: ...) -> (...)`, if there is one.

        Functions of torch's own tensors have none.
        """
        reflection = self._module.lookup_function(entry).reflection
        found: str | None = reflection.get("iree.abi.declaration")
        return found

    def results(self, entry: str, arguments: Sequence[tuple[Array, str]]) -> list[Array]:
        """Return the results of a function on copies of arrays, each with its type as in `bind`.

        bf16 is returned as uint16. Compiled code may write a result into an argument's memory.
        """
        return self.results_and_writes(entry, arguments)[0]

    def results_and_writes(
        self, entry: str, arguments: Sequence[tuple[Array, str]]
    ) -> tuple[list[Array], tuple[int, ...]]:
        """Return the results as `results` does, and the positions of overwritten arguments."""
        rt = runtime()
        held = [(_copied(array), element) for array, element in arguments]
        given, taken = self._given(held), rt.VmVariantList(1)
        self._context.invoke(self._module.lookup_function(entry), given, taken)
        results = [
            _taken(rt, self._device, taken.get_as_object(i, rt.HalBufferView))
            for i in range(len(taken))
        ]
        pairs = enumerate(zip(held, arguments, strict=True))
        return results, tuple(
            i for i, ((one, _), (other, _)) in pairs if one.tobytes() != other.tobytes()
        )

    def _given(self, arguments: Sequence[tuple[Array, str]]) -> Any:
        rt = runtime()
        given = rt.VmVariantList(len(arguments))
        for array, element in arguments:
            kind = ELEMENTS.get(element, element)
            given.push_ref(_imported(rt, self._device, array, kind))
        return given


def _copied(array: Array) -> Array:
    copy = empty_aligned(array.shape, array.dtype.type)
    copy[...] = array
    return copy


def runtime() -> Any:
    """Return the package `iree.runtime`, or raise CompilerAbsentError."""
    try:
        import iree.runtime
    except ModuleNotFoundError as error:
        raise CompilerAbsentError(
            f"{error.name} is not installed; install tilewise[kernels]"
        ) from error
    return iree.runtime


@functools.cache
def open_device(threads: int, *allocators: str) -> Any:
    """Return a device of this process, with `threads`; one thread is the caller's.

    `allocators` are IREE's names of those between the device and `malloc`; `caching` keeps freed
    memory. Without it memory comes zeroed, call by call.
    """
    rt = runtime()
    from iree.runtime import _binding

    given = list(allocators) or None
    if threads == 1:
        return rt.get_driver("local-sync").create_default_device(allocators=given)
    rt.flags.parse_flags(f"--task_topology_group_count={threads}")
    # A driver keeps the workers that it started with, and `get_driver` returns the first one.
    return _binding.create_hal_driver("local-task").create_default_device(allocators=given)


def _imported(rt: Any, device: Any, array: Array, element: str) -> Any:
    """Return the array's own memory as a buffer of the device."""
    memory = rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE
    usage = rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING
    raw = array.reshape(-1).view(np.uint8)
    buffer = device.allocator.import_host_allocation(raw, int(memory), int(usage))
    return rt.HalBufferView(buffer, list(array.shape), getattr(rt.HalElementType, element))


def _taken(rt: Any, device: Any, view: Any) -> Array:
    """Return a copy of a buffer of the device."""
    raw = rt.DeviceArray(device, view, implicit_host_transfer=True)
    values: Array = np.array(raw.to_host())
    return values.view(np.uint16) if values.dtype.name == "bfloat16" else values
