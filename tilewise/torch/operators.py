"""The operators `tilewise::prepare` and `tilewise::call`, compiled once per release of torch."""

import ctypes
import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch._inductor.cpp_builder import get_cpp_compiler
from torch.utils import cpp_extension

from tilewise.errors import TilewiseError
from tilewise.kernels.system.files import require_cache_dir

_SOURCE = Path(__file__).with_name("operators.cpp")
_PACKED_BYTES: dict[str, int] = {}
"""By symbol, for the shape of what `prepare` returns."""


def cache_folder() -> Path:
    """Return the folder of operators, kernels and verdicts, created if necessary."""
    folder = require_cache_dir() / "torch"
    folder.mkdir(exist_ok=True)
    return folder


def link(arguments: Sequence[str], output: Path) -> None:
    """Write a shared library atomically, with the compiler that Inductor uses as well.

    Raises:
        TilewiseError: the compiler failed; with the first line that has an error.
    """
    with tempfile.TemporaryDirectory(dir=output.parent) as folder:
        made = Path(folder) / output.name
        command = [get_cpp_compiler(), "-shared", "-fPIC", *arguments, "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or [command[0]]
            raise TilewiseError(f"{command[0]}: cannot make {output.name}: {lines[0][:100]}")
        made.replace(output)


@cache
def load_operators() -> ctypes.CDLL:
    """Return the loaded operators, compiled if this is the first use with this torch."""
    text = _SOURCE.read_bytes() + torch.__version__.encode()
    path = cache_folder() / f"operators-{hashlib.sha256(text).hexdigest()[:16]}.so"
    if not path.exists():
        include = [f"-I{folder}" for folder in cpp_extension.include_paths()]
        library = Path(torch.__file__).parent / "lib"
        linked = [f"-L{library}", "-ltorch_cpu", "-lc10"]
        link(["-O1", "-std=c++20", "-w", *include, str(_SOURCE), *linked], path)
    torch.ops.load_library(str(path))
    torch.library.register_fake("tilewise::prepare", _fake_prepare)
    torch.library.register_fake("tilewise::call", _fake_call)
    return ctypes.CDLL(str(path))


def _fake_prepare(weights: Any, symbol: str) -> Any:
    return weights.new_empty((_PACKED_BYTES[symbol],), dtype=torch.uint8)


def _fake_call(a: Any, _b: Any, _bias: Any, _add: Any, _symbol: str, shape: Sequence[int]) -> Any:
    return a.new_empty(shape)


def register(
    code: ctypes.CDLL, symbol: str, scratch: int, packed: int, parts: int, *, accumulates: bool
) -> None:
    """Make a loaded kernel known to the operators.

    Args:
        code: the shared library with the kernel.
        symbol: of its function.
        scratch: bytes of scratch of a call.
        packed: bytes of packed weights; 0 for variable weights.
        parts: units of work for threads.
        accumulates: whether the kernel adds to what its result holds.
    """
    ends = ("", "_part", "_prepare" if packed else "")
    addresses = [ctypes.cast(code[f"{symbol}{end}"], ctypes.c_void_p) for end in ends]
    numbers = [ctypes.c_int64(number) for number in (scratch, packed, parts)]
    load_operators().tilewise_register(symbol.encode(), *addresses, *numbers, int(accumulates))
    _PACKED_BYTES[symbol] = packed
