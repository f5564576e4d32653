"""Operands of a problem: random, aligned, in NumPy's types."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.kernels.problem import STORED, Problem

Array = NDArray[Any]
Operands = dict[str, Array]
# bf16 has no NumPy type; its bits are held in uint16.
NUMPY_TYPES: dict[str, type] = {
    "f32": np.float32,
    "f64": np.float64,
    "i32": np.int32,
    "bf16": np.uint16,
    "f16": np.float16,
    "i8": np.int8,
    "u8": np.uint8,
    "i4": np.int8,
    "u4": np.uint8,
}
_LIMITS = {"i4": (-8, 7), "u4": (0, 15)}
"""Of types that arrays hold one value of in a byte."""
ALIGNMENT = 64
POISON_BYTE = 0xC5
_HALF = 16


def empty_aligned(shape: tuple[int, ...], dtype: type) -> Array:
    """Return an uninitialised array that starts on a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size].view(dtype).reshape(shape)


def poison(array: Array) -> None:
    """Fill with a byte pattern that no right result has, so that unwritten elements show."""
    np.atleast_1d(array).view(np.uint8).fill(POISON_BYTE)


def make_operands(problem: Problem, seed: int = 0) -> Operands:
    """Return random `A`, `B`, `C` and `bias`, if any.

    Floats are uniform in [-1, 1), those of A and B below `operand_limit`; integers take their whole
    range, so that i32 sums wrap, and zero points that of their factor. C is random if the problem
    accumulates, else poisoned.
    """
    rng = np.random.default_rng(seed)
    operands: Operands = {}
    for name, shape in problem.operand_shapes.items():
        dtype = operand_type(problem, name)
        operands[name] = empty_aligned(shape, NUMPY_TYPES[dtype])
        if name == "C" and not problem.accumulates:
            poison(operands[name])
        else:
            limit = operand_limit(problem) if name in ("A", "B") else 1.0
            of = problem.type_of(name[-1].upper()) if name.startswith("zero_") else dtype
            operands[name][...] = _random(rng, shape, of, limit)
    if problem.requant:
        _spread_results(problem, operands)
    return operands


def _spread_results(problem: Problem, operands: Operands) -> None:
    """Make scales and the zero point such that results take all values, and few are cut off."""
    means, squares = [], []
    for name in ("A", "B"):
        zero = float(operands.get(f"zero_{name.lower()}", np.zeros(1)).item())
        means.append(operands[name].mean(dtype=np.float64) - zero)
        squares.append(operands[name].var(dtype=np.float64) + means[-1] ** 2)
    spread = math.sqrt(problem.depth * math.prod(squares)) + problem.depth * abs(math.prod(means))
    operands["scale_c"][...] = (1 + operands["scale_c"] / 2) * np.float32(50 / spread)
    operands["zero_c"][...] = operands["zero_c"] % 16 + (120 if problem.out == "u8" else -8)
    if problem.has_bias:
        operands["bias"] //= 1 << 12  # whose whole range would cut off all results


def operand_limit(problem: Problem) -> float:
    """Return the magnitude below which random floats of A and B stay, a power of two.

    It is 1, or small enough that most sums are below the result's ceiling, beyond which they would
    not reveal errors of products.
    """
    if problem.ceiling is None:
        return 1.0
    depth = problem.flops / (2 * math.prod(problem.operand_shapes["C"]))
    spread = math.sqrt(depth) / 3  # of a sum of products of uniform numbers
    return float(2.0 ** -max(0, round(math.log(spread / (problem.ceiling / 2), 4))))


def operand_type(problem: Problem, name: str) -> str:
    """Return the element type of an operand."""
    return problem.type_of(name)


def _random(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, limit: float) -> Array:
    if STORED[dtype].is_float:
        wide = np.float64 if dtype == "f64" else np.float32
        uniform = (rng.random(shape, dtype=wide) * 2 - 1) * wide(limit)
        return to_bf16(uniform) if dtype == "bf16" else uniform
    limits = np.iinfo(NUMPY_TYPES[dtype])
    low, high = _LIMITS.get(dtype, (limits.min, limits.max))
    return rng.integers(low, high, shape, dtype=limits.dtype, endpoint=True)


def less_zero(operands: Operands, name: str) -> Array:
    """Return a factor, less its zero point where it has one, in a type that holds the difference.

    So what is padded with zeros afterwards is padded with the zero point.
    """
    zero = operands.get(f"zero_{name.lower()}")
    return operands[name] if zero is None else operands[name].astype(np.int64) - zero


def to_bf16(values: Array) -> Array:
    """Return the bits of float32 values truncated to bf16."""
    return (values.view(np.uint32) >> _HALF).astype(np.uint16)


def widened(array: Array, dtype: str) -> Array:
    """Return operands in float64 or int64, exactly."""
    if dtype == "bf16":
        return (array.astype(np.uint32) << _HALF).view(np.float32).astype(np.float64)
    return array.astype(np.float64 if STORED[dtype].is_float else np.int64)
