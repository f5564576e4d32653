"""The signature of a compiled model from IREE's reflection, and random arguments."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewise.errors import TilewiseError
from tilewise.kernels.oracle.operands import Array, empty_aligned, to_bf16

if TYPE_CHECKING:
    from tilewise.kernels.mlir.iree.runtime import LoadedModule

NUMPY = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "uint16", "i1": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
}  # fmt: skip
"""NumPy's type for each element type; it holds bf16 as uint16."""

HAL = {
    "f32": "FLOAT_32", "f64": "FLOAT_64", "f16": "FLOAT_16", "bf16": "BFLOAT_16", "i1": "BOOL_8",
    "i8": "INT_8", "i16": "INT_16", "i32": "INT_32", "i64": "INT_64",
}  # fmt: skip
"""The runtime's name of each element type; a module's calls do not check signs."""

VIEW = "!hal.buffer_view"

_TENSOR = re.compile(r"tensor<((?:\d+x)*)([a-z]+[0-9]+|complex<\w+>)>")
_VALUE = re.compile(r"%(?:input|output)\d+: ([^,) {]+(?:<[^>]*>)?)")


ASYNC, FENCE = "$async", "!hal.fence"

_FUNCTION = re.compile(
    r'util\.func public @("[^"\n]*"|[^\s"(]+)\(([^)]*)\)((?:(?!\n  }\n).)*\n  }\n)', re.DOTALL
)
_ARGUMENT = re.compile(r"(%\w+): ([^,{\s]+)")
_DECLARATION = re.compile(r'iree\.abi\.declaration = "((?:[^"\\]|\\.)*)"')
_IMPORT = re.compile(
    r"hal\.tensor\.import.*?(%\w+)(?: \"[^\"\n]*\")? : !hal\.buffer_view -> (tensor<\S*>)"
)
_EXPORT = re.compile(r"(%\w+) = hal\.tensor\.export.*? : (tensor<\S*>) -> !hal\.buffer_view")
_RETURN = re.compile(r"util\.return ([^:\n]*) : ([^\n]*)")


@dataclass(frozen=True)
class TensorType:
    """A shape and an element type, such as `f32`."""

    shape: tuple[int, ...]
    element: str

    @property
    def numpy(self) -> str:
        """NumPy's type."""
        return NUMPY[self.element]

    def __str__(self) -> str:
        return f"tensor<{'x'.join(map(str, (*self.shape, self.element)))}>"


def tensors_in(declaration: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the texts of argument and result types in `sync func @main(...) -> (...)`."""
    given, _, results = declaration.partition("->")
    return tuple(_VALUE.findall(given)), tuple(_VALUE.findall(results))


def types_of(declaration: str) -> tuple[list[TensorType], list[TensorType]]:
    """Return the argument and result types in `sync func @main(...) -> (...)`.

    Raises TilewiseError for anything but static tensors of known elements.
    """
    given, results = tensors_in(declaration)
    return [*map(_tensor, given)], [*map(_tensor, results)]


def declarations_in(module: str) -> dict[str, str]:
    """Return the declaration of each function that a module exports.

    For torch tensors or buffer views, IREE's declaration has no tensors; their types are those of
    the imports and exports in the body of the function, or of its asynchronous version.
    """
    functions = {plain_name(found[1]): (found[2], found[3]) for found in _FUNCTION.finditer(module)}
    made: dict[str, str] = {}
    for name, (taken, body) in functions.items():
        plain = name.removesuffix(ASYNC)
        found = _DECLARATION.search(body.partition("\n")[0])
        if name != plain and plain in functions:
            continue
        if found is not None and VIEW not in found[1]:
            made[name] = found[1]
        else:
            arguments, lines = functions.get(f"{name}{ASYNC}", (taken, body))
            is_wrapper = f"{name}{ASYNC}" in functions
            made[name] = _declaration(name, arguments, lines, without=FENCE if is_wrapper else "")
    return made


def plain_name(symbol: str) -> str:
    """Return a symbol without quotes, as in `torch-jit-export`."""
    return symbol.strip('"')


def _declaration(name: str, arguments: str, body: str, without: str = "") -> str:
    """Return a declaration in IREE's form, leaving out arguments of type `without`."""
    imported, exported = dict(_IMPORT.findall(body)), dict(_EXPORT.findall(body))
    taken = [imported.get(value, kind) for value, kind in _ARGUMENT.findall(arguments)
             if kind != without]  # fmt: skip
    returned = _RETURN.search(body)
    pairs = zip(*(part.split(", ") for part in returned.groups()), strict=False) if returned else ()
    given = [exported.get(value) or imported.get(value, kind) for value, kind in pairs]
    takes = [f"%input{i}: {kind}" for i, kind in enumerate(taken)]
    gives = [f"%output{i}: {kind}" for i, kind in enumerate(given)]
    return f"sync func @{name}({', '.join(takes)}) -> ({', '.join(gives)})"


def random_array(kind: TensorType, random: np.random.Generator) -> Array:
    """Return normal floats, any i8, or zeros and ones of other integers, which may be indices.

    IREE reads the array in place and expects it to be aligned to a cache line.
    """
    made = empty_aligned(kind.shape, np.dtype(kind.numpy).type)
    if kind.element == "bf16":
        made[...] = to_bf16(random.standard_normal(kind.shape).astype(np.float32))
    elif kind.element.startswith("f"):
        made[...] = random.standard_normal(kind.shape)
    else:
        low, high = (-128, 128) if kind.element == "i8" else (0, 2)
        made[...] = random.integers(low, high, kind.shape)
    return made


def _tensor(text: str) -> TensorType:
    found = _TENSOR.fullmatch(text.strip())
    if found is None:
        raise TilewiseError(f"the model takes or returns {text}; give it tensors of static shape")
    if found[2] not in NUMPY:
        raise TilewiseError(f"the model takes or returns {text.strip()}; {found[2]} is not "
                            f"supported, give one of {', '.join(NUMPY)}")  # fmt: skip
    shape = tuple(int(size) for size in found[1].split("x") if size)
    return TensorType(shape, found[2])


def declaration_of(module: "LoadedModule", entry: str, others: Mapping[str, str]) -> str:
    """Return a function's declaration, from the compiler's or the module's."""
    found = others.get(entry) or module.declaration(entry)
    if found is None:
        raise TilewiseError(f"the function {entry} has no declaration; wrap it in a function "
                            "of tensors")  # fmt: skip
    return found


def entry_of(functions: list[str], wanted: str | None) -> str:
    """Return the requested function; by default `main` or the only one.

    Raises TilewiseError if it does not exist or is ambiguous.
    """
    names = [
        name for name in functions
        if not name.startswith("__") and name.removesuffix(ASYNC) not in {*functions} - {name}
    ]  # fmt: skip
    if not names:
        raise TilewiseError("the model has no public function; make one public")
    if wanted is not None:
        if wanted not in names:
            raise TilewiseError(f"the model has no function {wanted}; it has {', '.join(names)}")
        return wanted
    if "main" in names:
        return "main"
    if len(names) != 1:
        raise TilewiseError(f"the model has the functions {', '.join(names)}; name one by --entry")
    return names[0]
