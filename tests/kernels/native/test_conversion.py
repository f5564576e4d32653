"""Copies into other layouts are numpy's transpositions and pads."""

import random

import numpy as np
import pytest

from tilewise.kernels.native.conversion import Conversion, converter

COUNT = 60
TYPES = (np.uint8, np.uint16, np.uint32, np.uint64)


def random_conversion(rng: random.Random) -> Conversion:
    rank = rng.randint(1, 5)
    axes = range(rank)
    return Conversion(
        tuple(rng.choice((2, 3, 5, 17, 33) if rank < 5 else (2, 3)) for _ in axes),
        tuple(rng.sample(axes, rank)),
        tuple(rng.sample(axes, rank)),
        tuple(rng.choice((0, 0, 1, 2)) for _ in axes),
    )


@pytest.mark.parametrize("kind", TYPES)
def test_a_conversion_is_a_transposition_inside_of_a_halo(kind: type[np.unsignedinteger]) -> None:
    rng, values = random.Random(3), np.random.default_rng(3)
    seen = set()
    for _ in range(COUNT):
        conversion = random_conversion(rng)
        source = values.integers(0, 250, conversion.source_shape).astype(kind)
        target = np.full(conversion.target_shape, 255, kind)
        converter(conversion)(source, target)
        tensor = source.transpose(np.argsort(conversion.source))
        pads = [(one, one) for one in conversion.halo]
        expected = np.pad(tensor, pads, constant_values=255).transpose(conversion.target)
        np.testing.assert_array_equal(target, expected, err_msg=str(conversion))
        seen.add((conversion.source[-1] == conversion.target[-1], any(conversion.halo)))
    assert len(seen) == 4
