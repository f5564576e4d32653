"""The median, and the order statistics around it."""

from kernels.mlir.timing import summarise, time_call


def test_interval_encloses_the_median() -> None:
    timing = summarise([float(i) for i in range(101)])
    assert timing.median == 50.0
    # of 101 fair coins, 40 to 60 heads are 95% likely
    assert (timing.low, timing.high) == (40.0, 60.0)


def test_few_samples_give_their_extremes() -> None:
    timing = summarise([3.0, 1.0, 2.0])
    assert (timing.low, timing.median, timing.high) == (1.0, 2.0, 3.0)


def test_calls_are_warmed_up_and_repeated() -> None:
    calls: list[None] = []
    time_call(lambda: calls.append(None), seconds=0.0)
    assert len(calls) == 6
