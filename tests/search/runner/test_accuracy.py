"""What `accuracy=standard` allows: rms errors beside the direct method's."""

from dataclasses import replace

import pytest

from tilewise.kernels.oracle.accuracy import KINDS, MOST_TIMES
from tilewise.kernels.problem import Conv2d, parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile, Winograd
from tilewise.kernels.target import detect
from tilewise.search.runner.child.accuracy import check_accuracy, errors_of
from tilewise.search.runner.child.session import Session
from tilewise.search.runner.child.trial import trial
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.space.algorithms import LEAST_CHANNELS

HOST = detect()
COLS = 2 * HOST.lanes("f32")


def convolution(ci: int) -> Conv2d:
    problem = parse_problem(f"conv2d:n=1,h=14,w=14,ci={ci},co=40,kh=3,kw=3,pad=1,dtype=f32")
    assert isinstance(problem, Conv2d)
    return problem


def filtered(output: int, rows: int = 4) -> Schedule:
    return Schedule((Winograd(output), Pack("B"), Tile("t", rows), Pack("A"), Register(rows, COLS)))


OFFERED = [
    (*taps, output, least)
    for sides, outputs in LEAST_CHANNELS.items()
    for taps in sorted({sides, sides[::-1]})
    for output, least in outputs.items()
]


@pytest.mark.full
@pytest.mark.parametrize(("kh", "kw", "output", "least"), OFFERED)
def test_what_the_space_offers_is_accurate_enough(
    kh: int, kw: int, output: int, least: int
) -> None:
    for ci in (least, 4 * least):
        problem = replace(convolution(ci), kh=kh, kw=kw)
        for rows in (5, 12):
            errors = check_accuracy(problem, filtered(output, rows), HOST)
            assert all(0 < times <= MOST_TIMES for times in errors.values())


def test_a_method_that_is_off_is_found_along_either_axis() -> None:
    """Of a filter that lies as of one that stands: the strip has whole tiles of both."""
    for kh, kw in ((1, 5), (5, 1)):
        problem = replace(convolution(32), kh=kh, kw=kw)
        assert max(errors_of(problem, filtered(4), HOST).values()) < MOST_TIMES
        shallow = replace(problem, ci=1)
        assert max(errors_of(shallow, filtered(4), HOST).values()) > MOST_TIMES


def test_large_tiles_of_a_single_channel_are_wrong() -> None:
    """The direct method adds nine products; the transforms round as for any depth."""
    with pytest.raises(CandidateFailureError, match="times the direct method's") as failed:
        check_accuracy(convolution(1), filtered(4), HOST)
    assert failed.value.kind == "wrong"
    assert check_accuracy(convolution(1), filtered(2), HOST)


def test_a_trial_tells_the_errors_and_a_wrong_one_fails() -> None:
    session = Session(convolution(16).canonical, HOST.canonical, seed=0)
    reply = trial(session, list(filtered(4).to_json()), None)
    assert set(reply.accuracy) == set(KINDS)
    assert reply.max_error <= reply.tolerance
    direct = Schedule((Tile("n", 1), Pack("A"), Register(4, COLS)))
    assert trial(session, list(direct.to_json()), None).accuracy == {}
    shallow = Session(convolution(1).canonical, HOST.canonical, seed=0)
    with pytest.raises(CandidateFailureError, match="rms error"):
        trial(shallow, list(filtered(4).to_json()), None)
