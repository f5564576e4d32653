"""Inputs of a whole network: random, and so large that values neither grow nor die out on the way.

`tilewise.kernels.mlir.proof.child.inputs` has kinds that a single op should survive; through many
layers their values overflow.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tilewise.kernels.mlir.lowering.functions import Shaped, is_float
from tilewise.kernels.mlir.proof.child.inputs import in_type, uniform
from tilewise.kernels.oracle.operands import Array

Generator = np.random.Generator


def normal(random: Generator, kind: Shaped, depth: int) -> Array:
    """Of both signs; half of what a relu reads is cut off."""
    return random.standard_normal(kind.shape) * (2 / depth if depth else 1) ** 0.5


def positive(random: Generator, kind: Shaped, depth: int) -> Array:
    """Above zero: nothing cancels, no relu cuts, and zeros of padding alone are zeros."""
    return random.uniform(0.5, 1.5, kind.shape) / max(depth, 1)


KINDS: dict[str, Callable[[Generator, Shaped, int], Array]] = {
    kind.__name__: kind for kind in (normal, positive)
}


def network_inputs(
    kind: str, arguments: Sequence[Shaped], depths: Sequence[int], seed: int
) -> list[Array]:
    """Random values of one of `KINDS` for every argument; integers are any.

    Args:
        kind: its name.
        arguments: of the network's function.
        depths: for each of them how many products are summed where it is a weight, else 0.
        seed: of the values.
    """
    random = np.random.default_rng([seed, *kind.encode()])
    return [
        in_type(
            KINDS[kind](random, one, depth) if is_float(one.element) else uniform(random, one), one
        )
        for one, depth in zip(arguments, depths, strict=True)
    ]
