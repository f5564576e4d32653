"""The outline of a module to run, and its weights as pieces in a folder."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.mlir.frontend.child.actions import Read, action_of, loops_of
from tilewise.kernels.mlir.frontend.child.constants import Constants
from tilewise.kernels.mlir.frontend.child.dataflow import (
    BIAS,
    Surroundings,
    Traced,
    kind_of,
    traced,
)
from tilewise.kernels.mlir.frontend.child.values import element, owner, rank, static_shape
from tilewise.kernels.mlir.frontend.graph import Arrangement
from tilewise.kernels.mlir.frontend.nest import NestRefusedError
from tilewise.kernels.mlir.frontend.program import WEIGHT_TYPES, Action, Constant, Leaving, Outline
from tilewise.kernels.mlir.frontend.read import PIECE
from tilewise.kernels.problem import parse_problem

Array = NDArray[Any]


def outline(module: Any, text: bytes | None = None, folder: Path | None = None) -> Outline:
    """Return what a module on linalg with one function does, or raise RefusedError.

    Weights are written to `folder` as `NAME.0`, `NAME.1`, ...; without a folder, contractions have
    no constants and others no pieces. `text` holds the module's resources, None if removed.
    """
    seen = traced(module)
    if len(seen.functions) != 1:
        raise NestRefusedError(
            f"has {len(seen.functions)} functions; native networks need a module with one"
        )
    constants = Constants(text)
    reads = [_read(source, seen, constants) for source in seen.sources]
    actions = tuple(map(_acted, seen.sources, reads))
    held = [*_of_loops(reads, folder)]
    if folder is not None:
        held = [*_constants(seen, constants, folder), *held]
    return Outline(seen.graph, actions, tuple(held), tuple(_arguments(seen)), tuple(_results(seen)))


def _read(source: Any, seen: Traced, constants: Constants) -> Read | str:
    """Return a node as loops with its constants, or why it cannot be."""
    if isinstance(source, Surroundings):
        return ""
    try:
        return loops_of(source, seen.tensors, constants)
    except NestRefusedError as refusal:
        return str(refusal)


def _acted(source: Any, read: Read | str) -> Action:
    """Return what a node does: a pass, loops, or both."""
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
            raise NestRefusedError(
                f"takes a {argument.type}; native networks take tensors with axes"
            )
        static_shape(argument)
        number = seen.tensors.number_of(argument)
        assert number is not None
        yield number


def _results(seen: Traced) -> Iterator[Leaving]:
    for place, value in enumerate(seen.left):
        number = seen.tensors.number_of(value)
        if number is None:
            what = "a constant" if rank(value) else f"a {value.type}, which has no axes,"
            raise NestRefusedError(f"returns {what} as result {place}; leave it out")
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
        except NestRefusedError as refusal:
            raise NestRefusedError(f"{source.found.where}: {refusal}") from refusal


def _operands(
    source: Surroundings, seen: Traced, constants: Constants
) -> Iterator[tuple[str, str, Array]]:
    """Yield role, element type and values of each constant that a contraction reads."""
    for role, value in source.reads:
        if not _is_empty(value) and not seen.tensors.is_activation(value):
            yield role, element(value), _operand(source, role, constants.value(value))
    if source.number is not None:
        shape, dtype = parse_problem(source.found.problem).operand_shapes, element(source.op.result)
        yield BIAS, dtype, np.full(shape[BIAS], source.number, WEIGHT_TYPES[dtype])


def _is_empty(value: Any) -> bool:
    """Return whether a value is an uninitialised tensor."""
    maker = owner(value)
    return maker is not None and bool(maker.name == "tensor.empty")


def _operand(source: Surroundings, role: str, values: Array) -> Array:
    """Return a constant in the shape of a node's problem."""
    found = source.found
    if role == BIAS:
        return values.reshape(parse_problem(found.problem).operand_shapes[BIAS])
    return _arranged(values, {"A": found.a, "B": found.b, "C": found.c}[role])


def _arranged(values: Array, arrangement: Arrangement) -> Array:
    if len(arrangement.axes) != values.ndim:
        raise NestRefusedError(
            f"reads a weight with {values.ndim} axes in a way that is not followed"
        )
    moved = values.transpose(arrangement.axes)
    if moved.size != np.prod(arrangement.shape):
        raise NestRefusedError("reads a weight that is repeated")
    return moved.reshape(arrangement.shape)


def _write(array: Array, path: Path) -> int:
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    pieces = max(1, -(-len(raw) // PIECE))
    for i in range(pieces):
        raw[i * PIECE : (i + 1) * PIECE].tofile(f"{path}.{i}")
    return pieces
