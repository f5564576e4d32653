"""Object code made once and kept in the cache folder for other processes.

A process that compiles can do it for another that times.
"""

import functools
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

import llvmlite.binding as llvm
from llvmlite import ir

from tilewise.kernels.native.jit.object_code import ObjectCode, Passes, compile_module, features
from tilewise.kernels.system.cache_folder import cache_dir
from tilewise.kernels.system.regular_file import read_regular
from tilewise.kernels.system.toolchain import identity

MOST_BYTES = 256 << 20  # of kept objects; the ones used longest ago go first
_DIGEST = 32


def object_code(
    name: str, emit: Callable[[ir.Module], Sequence[ir.Function]], passes: Passes
) -> ObjectCode:
    """The object kept under `name`; where none is, made of what `emit` adds to a module."""
    made = kept_object(name)
    if made is None:
        module = ir.Module("object")
        made = compile_module(module, emit(module), passes)
        keep_object(name, made)
    return made


def kept_object(name: str) -> ObjectCode | None:
    """The object kept under `name`; None when there is none, or it is not whole."""
    path = _path(name)
    try:
        content = read_regular(path)
    except OSError:
        return None
    digest, body = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        return None
    with suppress(OSError):
        os.utime(path)
    functions, calls, code = body.split(b"\n", maxsplit=2)
    return ObjectCode(_names(functions), code, _names(calls))


def _names(line: bytes) -> tuple[str, ...]:
    return tuple(line.decode().split(",")) if line else ()


def keep_object(name: str, made: ObjectCode) -> None:
    """Keep an object for other processes; a full or read-only folder keeps nothing."""
    path = _path(name)
    lines = (",".join(names).encode() for names in (made.functions, made.calls))
    body = b"\n".join((*lines, made.code))
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(hashlib.sha256(body).digest() + body)
        draft.replace(path)
        _drop_oldest(path.parent)


def _path(name: str) -> Path:
    digest = hashlib.sha256(f"{_maker()} {name}".encode()).hexdigest()[:32]
    return cache_dir() / "objects" / f"{digest}.o"


@functools.lru_cache(maxsize=1)
def _maker() -> str:
    """Whatever decides the code beside the spec: the toolchain and the processor."""
    return f"{identity()} {llvm.get_host_cpu_name()} {features()}"


_COUNT_EVERY = 64
_kept = count(1)


def _drop_oldest(folder: Path) -> None:
    """Hold the folder to `MOST_BYTES`, looked at now and then."""
    if next(_kept) % _COUNT_EVERY:
        return
    found = []
    for path in folder.glob("*.o"):
        with suppress(OSError):  # another process may drop it first
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    excess = sum(size for _, size, _ in found) - MOST_BYTES
    for _, size, path in sorted(found):
        if excess <= 0:
            return
        with suppress(OSError):
            path.unlink()
        excess -= size
