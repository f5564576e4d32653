"""Printed drivers into functions that can be called, kept in the cache folder between processes."""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import llvmlite.binding as llvm

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.engines import Loaded
from tilewise.kernels.native.jit.object_cache import object_code
from tilewise.kernels.native.jit.object_code import ObjectCode, Passes
from tilewise.kernels.native.language.frame import called_name, symbol
from tilewise.kernels.native.language.to_ir import emit_driver, emit_function

Driver = Callable[[int], None]
_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_int64)  # calls without Python's lock
MOST_LOADED = 64
_PASSES: Passes = "level 1 by function"


@dataclass(frozen=True)
class Drivers:
    """Compiled functions, each of the address of a driver's parameters.

    Attributes:
        run: the driver.
        prepare: what packs constant weights before it, if any.
        entry: the driver's address, for threads.
    """

    run: Driver
    prepare: Driver | None
    entry: int
    _owner: Loaded = field(repr=False)


@functools.lru_cache(maxsize=MOST_LOADED)
def load_driver(text: str) -> Drivers:
    """Compile a driver's source, or load it from the cache folder.

    Raises:
        LoweringError: code generation failed.
    """
    try:
        owner = _linked(driver_code(text))
    except LoweringError:
        raise
    except Exception as error:
        raise LoweringError(f"compiling a driver failed: {error}") from error
    driver, *prepare = owner.addresses
    return Drivers(_TYPE(driver), _TYPE(prepare[0]) if prepare else None, driver, owner)


@functools.cache
def link(name: str) -> Loaded:
    """Let drivers call a function of their language: it is compiled once, apart from them."""
    key = f"{name} of the language of drivers"
    owner = _linked(object_code(key, lambda module: [emit_function(module, name)], _PASSES))
    llvm.add_symbol(symbol(name), owner.addresses[0])
    return owner


def _linked(made: ObjectCode) -> Loaded:
    """An object in this process, behind what it calls of the language."""
    for name in filter(None, map(called_name, made.calls)):
        link(name)
    return Loaded(made)


def driver_code(text: str) -> ObjectCode:
    """A driver's machine code, kept from now on."""
    return object_code(text, lambda module: emit_driver(module, text), _PASSES)
