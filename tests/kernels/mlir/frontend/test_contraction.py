"""Nests as matmuls, without MLIR."""

import pytest

from tilewise.kernels.mlir.frontend.nest import (
    ContractionNest,
    NestOperand,
    NestRefusedError,
    matmul_layout,
)

EXTENTS = {"b": 2, "c": 3, "m": 4, "n": 5, "o": 6, "k": 7, "l": 8, "u": 1}


def nest(a: str, b: str, c: str) -> ContractionNest:
    """`C[c] += A[a] * B[b]`, an index a letter."""
    letters = sorted({*a, *b, *c})

    def operand(read: str) -> NestOperand:
        axes = tuple(((letters.index(letter), 1),) for letter in read)
        return NestOperand(axes, tuple(EXTENTS[letter] for letter in read))

    return ContractionNest(
        tuple(EXTENTS[letter] for letter in letters), operand(a), operand(b), operand(c)
    )


@pytest.mark.parametrize(
    ("a", "b", "c", "keys"),
    [
        ("mk", "kn", "mn", "m=4 n=5 k=7"),
        ("km", "kn", "mn", "m=4 n=5 k=7 transpose_a"),
        ("mk", "nk", "mn", "m=4 n=5 k=7 transpose_b"),
        ("bmk", "bkn", "bmn", "batch=2 m=4 n=5 k=7"),
        ("bcmk", "bckn", "bcmn", "batch=6 m=4 n=5 k=7"),
        ("bmk", "kn", "bmn", "m=8 n=5 k=7"),
        ("mkl", "kln", "mn", "m=4 n=5 k=56"),
        ("mk", "kno", "mno", "m=4 n=30 k=7"),
        ("k", "kn", "n", "n=5 k=7"),
        ("mk", "k", "m", "m=4 k=7"),
        ("m", "n", "mn", "m=4 n=5"),
        ("umk", "kun", "umn", "m=4 n=5 k=7"),
    ],
)
def test_a_matmul_whose_operands_stay_where_they_are(a: str, b: str, c: str, keys: str) -> None:
    found = matmul_layout(nest(a, b, c))
    told = [
        key if value is True else f"{key}={value}"
        for key, value in found.sizes.items()
        if value not in (False, 1) or value is True
    ]
    assert told == keys.split()
    assert found.moved == 0 and not found.is_swapped


def test_a_turned_result_changes_the_inputs_over() -> None:
    found = matmul_layout(nest("mk", "kn", "nm"))
    assert found.is_swapped and found.moved == 0
    assert (found.sizes["m"], found.sizes["n"]) == (5, 4)
    assert found.columns == {1}


def test_the_cheapest_operand_is_moved() -> None:
    mixed = nest("mk", "knl", "mnl")
    assert matmul_layout(mixed).moved == 0
    turned = nest("bmk", "nbk", "bmn")  # the batch of B is not its first axis
    assert matmul_layout(turned).axes[1] in ((1, 2, 0), (1, 0, 2))
    assert matmul_layout(turned).moved == 2 * 5 * 7 + 1
    assert matmul_layout(turned, (1, 0, 1)).moved == 1


@pytest.mark.parametrize(
    ("a", "b", "c", "reason"),
    [
        ("mkl", "kn", "mn", "sums the first input alone"),
        ("mk", "knl", "mn", "sums the second input alone"),
        ("mk", "kn", "mno", "repeats its result"),
        ("mkk", "kn", "mn", "diagonal"),
    ],
)
def test_what_is_none_is_refused(a: str, b: str, c: str, reason: str) -> None:
    with pytest.raises(NestRefusedError, match=reason):
        matmul_layout(nest(a, b, c))
