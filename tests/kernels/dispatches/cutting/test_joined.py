"""Softmax is told from what only looks like it."""

from tilewise.kernels.dispatches.cutting.joined import is_softmax, with_quick_maxima
from tilewise.kernels.mlir.frontend.program import ScalarOp

SOFTMAX = (
    ScalarOp("read"),
    ScalarOp("row max", (0,)),
    ScalarOp("subtract", (0, 1)),
    ScalarOp("exp", (2,)),
    ScalarOp("row sum", (3,)),
    ScalarOp("number", (), 1.0),
    ScalarOp("divide", (5, 4)),
    ScalarOp("multiply", (3, 6)),
)
LAST = 7


def test_powers_over_their_sum_are_softmax_if_the_largest_is_one() -> None:
    assert is_softmax(SOFTMAX, 3, 4)
    of_another = (*SOFTMAX[:1], ScalarOp("row min", (0,)), *SOFTMAX[2:])
    assert not is_softmax(of_another, 3, 4)
    of_itself = (*SOFTMAX[:3], ScalarOp("exp", (0,)), *SOFTMAX[4:])
    assert not is_softmax(of_itself, 3, 4)
    of_more = (*SOFTMAX[:4], ScalarOp("row sum", (2,)), *SOFTMAX[5:])
    assert not is_softmax(of_more, 3, 4)


STARTED = (
    *SOFTMAX[:2],
    ScalarOp("number", (), -3.4028234663852886e38),
    ScalarOp("max", (1, 2)),
    ScalarOp("subtract", (0, 3)),
    ScalarOp("exp", (4,)),
    ScalarOp("row sum", (5,)),
    ScalarOp("number", (), 1.0),
    ScalarOp("divide", (7, 6)),
    ScalarOp("multiply", (5, 8)),
)


def test_a_maximum_that_starts_from_the_least_number_is_softmaxs_too() -> None:
    assert is_softmax(STARTED, 5, 6)
    assert with_quick_maxima(STARTED, 9)[1] == ScalarOp("row larger", (0,))
    read_again = (*STARTED, ScalarOp("add", (9, 1)))
    assert with_quick_maxima(read_again, 10) == read_again
    least = (*STARTED[:2], ScalarOp("number", (), -1e30), *STARTED[3:])
    assert not is_softmax(least, 5, 6)


def test_a_maximum_that_only_softmax_reads_need_not_be_nan() -> None:
    quick = with_quick_maxima(SOFTMAX, LAST)
    assert quick[1] == ScalarOp("row larger", (0,))
    assert (quick[0], *quick[2:]) == (SOFTMAX[0], *SOFTMAX[2:])
    for other in (ScalarOp("add", (7, 1)), ScalarOp("add", (7, 2)),
                  ScalarOp("add", (7, 3))):  # fmt: skip
        longer = (*SOFTMAX, other)
        assert with_quick_maxima(longer, LAST + 1) == longer
    assert with_quick_maxima(SOFTMAX, 3) == SOFTMAX
