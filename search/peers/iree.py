"""IREE: compiled for this processor, default and with data tiling, run in this process.

The calls are the ones that a user of the Python runtime has at best: the problem's own
buffers imported without a copy, the result's buffer passed in, one `invoke` per run. The
cost of that call (some 5 us) is part of the measurement, as it is of theirs.
"""

import functools
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from kernels.oracle.operands import Array, Operands, empty_aligned
from kernels.problem import Problem
from kernels.system.children import child_command, child_environment
from search.peers.iree_text import (
    ENTRY,
    SCOPE,
    argument_names,
    module_text,
)
from search.peers.variant import PeerAbsentError, Variant

FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-input-demote-f64-to-f32=false",
)
VARIANTS = {"default": (), "data tiling": ("--iree-opt-data-tiling",)}
COMPILE_LIMIT_S = 90.0
COMPILE_MEMORY = 16 << 30  # of address space, which is far above what is touched
ELEMENTS = {
    "f32": "FLOAT_32", "f64": "FLOAT_64", "f16": "FLOAT_16", "bf16": "BFLOAT_16",
    "i8": "SINT_8", "i32": "SINT_32",
}  # fmt: skip


def variants(problem: Problem, operands: Operands, threads: int) -> list[Variant]:
    """IREE's default and its data tiling; one that does not compile is left out.

    Raises:
        PeerAbsentError: IREE is not installed, or cannot compile the problem.
    """
    try:
        import iree.runtime as rt
        from iree.compiler.tools import binaries
    except ModuleNotFoundError as error:
        raise PeerAbsentError(f"{error.name} is not installed; install tilewise[peers]") from error
    tool, text = binaries.find_tool("iree-compile"), module_text(problem)
    device = _device(threads)
    made, refused = [], []
    for name, flags in VARIANTS.items():
        try:
            code = compile_module(tool, text, flags)
        except PeerAbsentError as error:
            refused.append(f"{name}: {error}")
            continue
        made.append(_bound(rt, device, code, problem, operands, name))
    if not made:
        raise PeerAbsentError("; ".join(refused))
    return made


def version() -> str:
    """Such as `IREE 3.13.0 (runtime 3.13.0)`."""
    from importlib import metadata

    return (
        f"IREE {metadata.version('iree-base-compiler')} "
        f"(runtime {metadata.version('iree-base-runtime')})"
    )


def compile_module(tool: str, text: str, flags: tuple[str, ...] = ()) -> bytes:
    """Compile in a process that can be killed.

    Raises:
        PeerAbsentError: it failed, or took longer than `COMPILE_LIMIT_S`.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, code = Path(folder) / "module.mlir", Path(folder) / "module.vmfb"
        source.write_text(text)
        command = [tool, *FLAGS, *flags, str(source), "-o", str(code)]
        try:
            done = subprocess.run(
                child_command("search.peers.iree_compile", str(COMPILE_MEMORY), *command),
                env=child_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMPILE_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PeerAbsentError(f"no code after {COMPILE_LIMIT_S:.0f} s") from error
        if done.returncode:
            raise PeerAbsentError(f"does not compile: {_first_error(done.stderr)}")
        return code.read_bytes()


def _first_error(said: str) -> str:
    lines = said.splitlines()
    found = next((line for line in lines if "error:" in line), lines[-1] if lines else "no message")
    return found.partition("error:")[2].strip() or found.strip()


@functools.cache
def _device(threads: int) -> Any:
    """One thread runs in the caller's; more run on IREE's own, while the caller waits."""
    import iree.runtime as rt
    from iree.runtime import _binding

    if threads == 1:
        return rt.get_driver("local-sync").create_default_device()
    rt.flags.parse_flags(f"--task_topology_group_count={threads}")
    # A driver keeps the workers that it started with, and `get_driver` hands out the first one.
    return _binding.create_hal_driver("local-task").create_default_device()


def _bound(
    rt: Any, device: Any, code: bytes, problem: Problem, operands: Operands, name: str
) -> Variant:
    """Load a module and bind it to the operands."""
    instance = rt.VmInstance()
    modules = [rt.create_hal_module(instance, device)]
    if problem.has_constant_weights:
        index = rt.ParameterIndex()
        rt.parameter_index_add_numpy_ndarray(index, "B", operands["B"])
        provider = index.create_provider(SCOPE)
        modules.append(rt.create_io_parameters_module(instance, provider))
    module = rt.VmModule.copy_buffer(instance, code)
    context = rt.VmContext(instance, [*modules, module])
    function = module.lookup_function(ENTRY)
    out = operands["C"]
    if problem.accumulates:  # C is read again by every run, so the sum goes elsewhere
        out = empty_aligned(out.shape, out.dtype.type)
    buffers = [(operands[given], given) for given in argument_names(problem)] + [(out, "C")]
    arguments = rt.VmVariantList(len(buffers))
    for array, given in buffers:
        arguments.push_ref(_imported(rt, device, array, _element(problem, given)))

    def run(repeat: int) -> None:
        for _ in range(repeat):
            context.invoke(function, arguments, rt.VmVariantList(1))

    return Variant("iree", name, run, lambda: out)


def _element(problem: Problem, name: str) -> str:
    element = problem.element
    return ELEMENTS[element.name if name in ("A", "B") else element.accumulator]


def _imported(rt: Any, device: Any, array: Array, element: str) -> Any:
    """The array's own memory as a buffer of the device."""
    memory = rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE
    usage = rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING
    raw = array.reshape(-1).view(np.uint8)
    buffer = device.allocator.import_host_allocation(raw, int(memory), int(usage))
    return rt.HalBufferView(buffer, list(array.shape), getattr(rt.HalElementType, element))
