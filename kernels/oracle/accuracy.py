"""The accuracy of a method relative to the direct one: rms errors on several kinds of operands.

`accuracy=standard` allows an rms error of up to `MOST_TIMES` that of the direct method, against
float64, for each of the `KINDS` of operands:

    gaussian        standard normal image and filter
    uniform         both uniform in [0, 1): sums without cancellation
    relu            a gaussian image cut off below zero, as in networks
    scaled          a gaussian image and filter whose channels differ by up to 2**16, and an image
                    whose pixels do, so that large and small values share a tile

Rounding depends on the depth of the sums, not on their number, so a few pixels suffice. A few
channels dominate the result of `scaled` operands; how many depends on chance, so the rms over
several draws is used.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from tilewise.kernels.oracle.operands import NUMPY_TYPES, Array, Operands, empty_aligned
from tilewise.kernels.problem import Problem

Kind = Literal["gaussian", "uniform", "relu", "scaled"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MOST_TIMES = 4.0
MOST_TIMES_IN_PARTS = 256.0
"""Of `accuracy=bf16x3`, whose factors are 2**-16 off however short the sums are."""
SPREAD = 8  # doublings up and down
DRAWS: dict[Kind, int] = {"gaussian": 1, "uniform": 1, "relu": 1, "scaled": 4}


def operands_of_kind(problem: Problem, kind: Kind, seed: int = 0) -> Operands:
    """Return random A, B and a C of zeros for an nhwc convolution of floats without bias."""
    rng = np.random.default_rng(seed)
    shapes = problem.operand_shapes
    if kind == "uniform":
        image, weights = rng.random(shapes["A"]), rng.random(shapes["B"])
    else:
        image, weights = rng.standard_normal(shapes["A"]), rng.standard_normal(shapes["B"])
    if kind == "relu":
        image = np.maximum(image, 0.0)
    if kind == "scaled":
        image *= _powers(rng, (*shapes["A"][:3], 1)) * _powers(rng, shapes["A"][3:])
        weights *= _powers(rng, (shapes["B"][2], 1))
    made = {"A": image, "B": weights, "C": np.zeros(shapes["C"])}
    return {name: _as(problem, array) for name, array in made.items()}


def _powers(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return random powers of two, which round nothing themselves."""
    return np.exp2(rng.integers(-SPREAD, SPREAD, shape, endpoint=True))


def _as(problem: Problem, array: Array) -> Array:
    out = empty_aligned(array.shape, NUMPY_TYPES[problem.element.name])
    out[...] = array
    return out


def rms_error(found: Array, exact: Array) -> float:
    """Return the root mean square difference; infinite if something is not a number."""
    error = float(np.sqrt(np.mean(np.square(found.astype(np.float64) - exact))))
    return error if np.isfinite(error) else np.inf


def over_draws(errors: Sequence[float]) -> float:
    """Return the root mean square of the errors of several draws of operands."""
    return float(np.sqrt(np.mean(np.square(errors))))
