"""The outline of a module to run, and its weights as pieces in a folder."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from tilewise.kernels.mlir.frontend.child.actions import Array, Held, action_of, loops_of
from tilewise.kernels.mlir.frontend.child.constants import Constants
from tilewise.kernels.mlir.frontend.child.dataflow import (
    BIAS,
    Surroundings,
    Traced,
    kind_of,
    traced,
)
from tilewise.kernels.mlir.frontend.child.values import element, is_empty, rank, static_shape
from tilewise.kernels.mlir.frontend.graph import Occurrence
from tilewise.kernels.mlir.frontend.nest import NestRefusedError
from tilewise.kernels.mlir.frontend.program import WEIGHT_TYPES, Action, Constant, Leaving, Outline
from tilewise.kernels.mlir.frontend.read import PIECE
from tilewise.kernels.problem import parse_problem


def outline(module: Any, text: bytes | None = None, folder: Path | None = None) -> Outline:
    """Return what a module on linalg with one function does, or why it cannot be run here.

    Weights are written to `folder` as `NAME.0`, `NAME.1`, ...; without a folder, contractions have
    no constants and others no pieces. `text` holds the module's resources, None if removed.
    """
    seen = traced(module)
    try:
        return _run_here(seen, Constants(text), folder)
    except NestRefusedError as refusal:
        return Outline(seen.graph, refused=str(refusal))


def _run_here(seen: Traced, constants: Constants, folder: Path | None) -> Outline:
    if len(seen.functions) != 1:
        raise NestRefusedError(
            f"has {len(seen.functions)} functions; native networks need a module with one"
        )
    done = [_done(source, seen, constants) for source in seen.sources]
    of_loops = ((number, *one) for number, (_, read) in enumerate(done) for one in read)
    weights = () if folder is None else _weights(seen, constants)  # one at a time
    return Outline(
        seen.graph,
        tuple(action for action, _ in done),
        tuple(_constant(*one, folder) for one in chain(weights, of_loops)),
        tuple(_arguments(seen)),
        tuple(_results(seen)),
    )


def _done(source: Any, seen: Traced, constants: Constants) -> tuple[Action, list[Held]]:
    """Return what a node does, a pass, loops, or both, and the constants of the loops."""
    if isinstance(source, Surroundings):
        return Action(), []
    action = action_of(source)
    try:
        loops, held = loops_of(source, seen.tensors, constants)
    except NestRefusedError as refusal:
        is_of_loops = action.refused and kind_of(source) == "elementwise"
        return replace(action, refused=str(refusal)) if is_of_loops else action, []
    return replace(action, loops=loops, refused=""), held


def _constant(number: int, role: str, dtype: str, array: Array, folder: Path | None) -> Constant:
    """Return a constant, written to a folder if there is one."""
    name = f"{number}.{role.replace(' ', '_')}"
    pieces = 0 if folder is None else _write(array, folder / name)
    return Constant(number, role, dtype, array.shape, name, pieces)


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


def _weights(seen: Traced, constants: Constants) -> Iterator[tuple[int, str, str, Array]]:
    """Yield number, role, element type and values of each constant that contractions read."""
    for number, source in enumerate(seen.sources):
        if not isinstance(source, Surroundings):
            continue
        try:
            for role, dtype, array in _held(source, seen, constants):
                yield number, role, dtype, array
        except NestRefusedError as refusal:
            raise NestRefusedError(f"{source.found.where}: {refusal}") from refusal


def _held(source: Surroundings, seen: Traced, constants: Constants) -> Iterator[Held]:
    for role, value in source.reads:
        if not is_empty(value) and not seen.tensors.is_activation(value):
            yield role, element(value), _operand(source.found, role, constants.value(value))
    if source.number is not None:
        shape, dtype = parse_problem(source.found.problem).operand_shapes, element(source.op.result)
        yield BIAS, dtype, np.full(shape[BIAS], source.number, WEIGHT_TYPES[dtype])


def _operand(found: Occurrence, role: str, values: Array) -> Array:
    """Return a constant in the shape of a node's problem."""
    if role == BIAS:
        return values.reshape(parse_problem(found.problem).operand_shapes[BIAS])
    arrangement = found.arrangements[role]
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
