"""The outline of a module that is to run, and its weights as pieces in a folder.

Constants are followed through what a compiler would compute when it loads the module.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from iree.compiler import ir
from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend.child.actions import Read, action_of, expression, loops_of
from tilewise.kernels.mlir.frontend.child.bodies import Expr, body_of
from tilewise.kernels.mlir.frontend.child.dataflow import (
    BIAS,
    VIEWS,
    Surroundings,
    Traced,
    kind_of,
    traced,
)
from tilewise.kernels.mlir.frontend.child.values import (
    MOST_STEPS,
    Number,
    Structured,
    element,
    integers,
    is_copy,
    only_user,
    owner,
    rank,
    splat,
    static_shape,
    structured,
)
from tilewise.kernels.mlir.frontend.graph import Arrangement
from tilewise.kernels.mlir.frontend.nest import RefusedError
from tilewise.kernels.mlir.frontend.program import (
    WEIGHT_TYPES,
    Action,
    Constant,
    Leaving,
    Outline,
)
from tilewise.kernels.problem import parse_problem

Array = NDArray[Any]
_ENTRY = re.compile(rb'(?:"([^"\n]*)"|([A-Za-z0-9_.$-]+))\s*:\s*"0x([0-9A-Fa-f]*)"')
_RESOURCE = re.compile(r'dense_resource<(?:"(.*)"|(.*))> : tensor<[^<>]*>')
_HEX = re.compile(r'dense<"0x([0-9A-Fa-f]*)"> : ')
_ALIGNMENT_BYTES = 4  # before the values of a resource
_HALF = 16


class Constants:
    """The values of a module's constants.

    Args:
        text: of the module, with its resources; None where they are cut out: zeros stand for them.
    """

    def __init__(self, text: bytes | None) -> None:
        self._is_cut, text = text is None, text or b""
        begin = text.rfind(b"{-#")
        found = () if begin < 0 else _ENTRY.finditer(text, begin)
        self._text = text
        self._resources = {(one[1] or one[2]).decode(): one.span(3) for one in found}

    def value(self, value: Any, steps: int = MOST_STEPS) -> Array:
        """The elements of a constant.

        Raises:
            RefusedError: it is computed in a way that is not followed, or its bytes are absent.
        """
        op, shape, dtype = owner(value), static_shape(value), _stored(element(value))
        if op is None or not steps:
            raise RefusedError("reads a weight that is no constant of the module")
        number = splat(value)
        if number is not None:
            return np.broadcast_to(_of_number(number, element(value)), shape)
        if op.name == "arith.constant":
            return self._attribute(op.attributes["value"], shape, dtype)
        if op.name in VIEWS:
            return self.value(op.operands[0], steps - 1).reshape(shape)
        if op.name == "tensor.extract_slice" and len(op.operands) == 1:
            return _sliced(op, self.value(op.operands[0], steps - 1)).reshape(shape)
        seen = structured(op)
        if seen is not None and is_copy(op):
            return _copied(seen, self.value(op.operands[0], steps - 1), shape)
        if seen is not None and _narrows(seen):
            return to_bf16(self.value(op.operands[0], steps - 1))
        raise RefusedError(f"reads a weight that {op.name} computes")

    def _attribute(self, attribute: Any, shape: tuple[int, ...], dtype: type[Any]) -> Array:
        if isinstance(attribute, ir.DenseElementsAttr):
            return _of_dense(attribute, shape, dtype)
        named = _RESOURCE.fullmatch(str(attribute))
        span = None if named is None else self._resources.get(named[1] or named[2])
        if span is None and self._is_cut:
            return np.zeros(shape, dtype)
        if span is None:
            raise RefusedError("reads a weight whose bytes are not in the module")
        raw = bytes.fromhex(self._text[slice(*span)].decode())[_ALIGNMENT_BYTES:]
        return _of_bytes(raw, shape, dtype)


def to_bf16(values: Array) -> Array:
    """f32 rounded to the nearest bf16, ties to even, as bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> _HALF) & 1)) >> _HALF
    return np.where(np.isnan(values), (bits >> _HALF) | 0x40, rounded).astype(np.uint16)


def _stored(name: str) -> type[Any]:
    if name not in WEIGHT_TYPES:
        raise RefusedError(f"reads weights of {name}; {', '.join(WEIGHT_TYPES)} are run here")
    return WEIGHT_TYPES[name]


def _of_number(number: Number, name: str) -> Array:
    if name == "bf16":
        return to_bf16(np.array(number, np.float32))
    return np.array(number, WEIGHT_TYPES[name])


def _of_dense(attribute: Any, shape: tuple[int, ...], dtype: type[Any]) -> Array:
    if dtype is not np.uint16:
        return np.array(attribute).reshape(shape)
    text = str(attribute)  # MLIR gives no buffer of bf16
    raw = _HEX.match(text)
    if raw is not None:
        return _of_bytes(bytes.fromhex(raw[1]), shape, dtype)
    body = text.removeprefix("dense<").rpartition("> : ")[0]
    numbers = body.replace("[", " ").replace("]", " ").replace(",", " ").split()
    return to_bf16(np.array([_number(one) for one in numbers], np.float32)).reshape(shape)


def _number(text: str) -> float:
    """A bf16 as MLIR prints it; one that is not finite is printed as its bits."""
    if not text.startswith("0x"):
        return float(text)
    return float(np.array([int(text, 16) << _HALF], np.uint32).view(np.float32)[0])


def _of_bytes(raw: bytes, shape: tuple[int, ...], dtype: type[Any]) -> Array:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if len(raw) == np.dtype(dtype).itemsize and size > len(raw):  # a splat
        return np.broadcast_to(np.frombuffer(raw, dtype)[0], shape)
    if len(raw) != size:
        raise RefusedError(f"reads a weight of {len(raw)} bytes that should have {size}")
    return np.frombuffer(raw, dtype).reshape(shape)


def _sliced(op: Any, values: Array) -> Array:
    """A part of an array; its offsets, sizes and steps are static."""
    offsets, sizes, steps = (
        integers(op.attributes[f"static_{name}"]) for name in ("offsets", "sizes", "strides")
    )
    return values[tuple(
        slice(first, first + size * step, step)
        for first, size, step in zip(offsets, sizes, steps, strict=True)
    )]  # fmt: skip


def _copied(op: Structured, values: Array, shape: tuple[int, ...]) -> Array:
    """A transposition or a repetition."""
    read, written = op.maps
    if read is None or written is None or any(len(axis) != 1 for axis in written):
        raise RefusedError("reads a weight that is copied in a way that is not followed")
    if any(len(axis) > 1 or any(step != 1 for _, step in axis) for axis in read):
        raise RefusedError("reads a weight that is copied in a way that is not followed")
    values = values[tuple(slice(None) if axis else 0 for axis in read)]
    dims = [axis[0][0] for axis in read if axis]
    order = [axis[0][0] for axis in written]
    if len(set(dims)) != len(dims) or not set(dims) <= set(order):
        raise RefusedError("reads a weight that is copied in a way that is not followed")
    values = values.transpose(sorted(range(len(dims)), key=lambda i: order.index(dims[i])))
    return np.broadcast_to(
        values[tuple(slice(None) if dim in dims else None for dim in order)], shape
    )


def _narrows(op: Structured) -> bool:
    """Whether an op rounds its only input from f32 to bf16, element by element."""
    if len(op.inputs) != 1 or not rank(op.inputs[0]) or not op.is_identity(0):
        return False
    types = element(op.inputs[0]), element(op.result)
    return types == ("f32", "bf16") and body_of(op) == Expr("arith.truncf", (Expr("arg"),))


PIECE = 32 << 20  # bytes of a file: a child may not write larger ones


def outline(module: Any, text: bytes | None = None, folder: Path | None = None) -> Outline:
    """What a module on linalg does, whose weights become files in a folder.

    Args:
        module: on linalg, with one function.
        text: of the module, with its resources; None where they are cut out.
        folder: where each constant becomes pieces, `NAME.0`, `NAME.1`, ...; None for no constants
            of contractions, and no pieces of the others.

    Raises:
        RefusedError: its functions, arguments, results or weights are none that are run here.
    """
    seen = traced(module)
    if len(seen.functions) != 1:
        raise RefusedError(f"has {len(seen.functions)} functions; a module with one is run here")
    constants = Constants(text)
    reads = [_read(source, seen, constants) for source in seen.sources]
    actions = tuple(map(_acted, seen.sources, reads))
    held = [*_of_loops(reads, folder)]
    if folder is not None:
        held = [*_constants(seen, constants, folder), *held]
    return Outline(seen.graph, actions, tuple(held), tuple(_arguments(seen)), tuple(_results(seen)))


def _read(source: Any, seen: Traced, constants: Constants) -> Read | str:
    """A node as loops with its constants, or why it is none."""
    if isinstance(source, Surroundings):
        return ""
    try:
        return loops_of(source, seen.tensors, constants)
    except RefusedError as refusal:
        return str(refusal)


def _acted(source: Any, read: Read | str) -> Action:
    """What a node does: as one of the passes, as loops, or as both."""
    if isinstance(source, Surroundings):
        return Action()
    action = action_of(source)
    if isinstance(read, Read):
        return replace(action, loops=read.loops, refused="")
    is_of_loops = action.refused and kind_of(source) == "elementwise"
    return replace(action, refused=read) if is_of_loops else action


def _of_loops(reads: list[Read | str], folder: Path | None) -> Iterator[Constant]:
    for number, read in enumerate(reads):
        for role, array in read.constants.items() if isinstance(read, Read) else ():
            assert isinstance(read, Read)
            (dtype,) = {one.dtype for one in read.loops.accesses if one.constant == role}
            name = f"{number}.{role.replace(' ', '_')}"
            pieces = 0 if folder is None else _write(array, folder / name)
            yield Constant(number, role, dtype, array.shape, name, pieces)


def _arguments(seen: Traced) -> Iterator[int]:
    for argument in seen.functions[0].regions[0].blocks[0].arguments:
        if not rank(argument):
            raise RefusedError(f"takes a {argument.type}; tensors with axes are run here")
        static_shape(argument)
        number = seen.tensors.number_of(argument)
        assert number is not None
        yield number


def _results(seen: Traced) -> Iterator[Leaving]:
    for place, value in enumerate(seen.left):
        number = seen.tensors.number_of(value)
        if number is None:
            what = "a constant" if rank(value) else f"a {value.type}, which has no axes,"
            raise RefusedError(f"returns {what} as result {place}; leave it out")
        yield Leaving(number, static_shape(value))


def _constants(seen: Traced, constants: Constants, folder: Path) -> Iterator[Constant]:
    for number, source in enumerate(seen.sources):
        if not isinstance(source, Surroundings):
            continue
        try:
            for role, dtype, array in _operands(source, seen, constants):
                name = f"{number}.{role}"
                pieces = _write(array, folder / name)
                yield Constant(number, role, dtype, array.shape, name, pieces)
        except RefusedError as refusal:
            raise RefusedError(f"{source.found.where}: {refusal}") from refusal


def _operands(
    source: Surroundings, seen: Traced, constants: Constants
) -> Iterator[tuple[str, str, Array]]:
    """Role, element type and values of each constant that a contraction reads."""
    roles = set()
    for role, value in source.reads:
        if not _is_empty(value):
            roles.add(role)
            if not seen.tensors.is_activation(value):
                yield role, element(value), _operand(source, role, constants.value(value))
    shape = parse_problem(source.found.problem).operand_shapes.get(BIAS)
    number = None if shape is None or BIAS in roles else _number_added(source)
    if shape is not None and number is not None:
        dtype = element(source.op.result)
        yield BIAS, dtype, np.full(shape, number, WEIGHT_TYPES[dtype])


def _number_added(source: Surroundings) -> Number | None:
    """A bias that is one number."""
    start = splat(source.op.init)
    if start:
        return start
    value = source.op.result
    while value != source.result:
        user = only_user(value)
        if user is None:
            return None
        if user.name not in VIEWS and (number := _added(expression(user))) is not None:
            return number
        value = user.results[0]
    return None


def _added(body: Expr) -> Number | None:
    """The number that is added somewhere in an expression."""
    if body.name in ("arith.addf", "arith.addi"):
        for one in body.of:
            if one.name == "const":
                return one.value
    return next((number for one in body.of if (number := _added(one)) is not None), None)


def _is_empty(value: Any) -> bool:
    """Whether a value only says where a result goes."""
    maker = owner(value)
    return maker is not None and bool(maker.name == "tensor.empty")


def _operand(source: Surroundings, role: str, values: Array) -> Array:
    """A constant as the problem of a node has it."""
    found = source.found
    if role == BIAS:
        return values.reshape(parse_problem(found.problem).operand_shapes[BIAS])
    return _arranged(values, {"A": found.a, "B": found.b, "C": found.c}[role])


def _arranged(values: Array, arrangement: Arrangement) -> Array:
    if len(arrangement.axes) != values.ndim:
        raise RefusedError(f"reads a weight with {values.ndim} axes in a way that is not followed")
    moved = values.transpose(arrangement.axes)
    if moved.size != np.prod(arrangement.shape):
        raise RefusedError("reads a weight that is repeated")
    return moved.reshape(arrangement.shape)


def _write(array: Array, path: Path) -> int:
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    pieces = max(1, -(-len(raw) // PIECE))
    for i in range(pieces):
        raw[i * PIECE : (i + 1) * PIECE].tofile(f"{path}.{i}")
    return pieces
