import pytest

from benchmarks.replay.problems import UNSEEN, relatives
from benchmarks.searching.warm_start import compare
from tilewise.kernels.problem import Matmul, parse_problem
from tilewise.kernels.target import detect
from tilewise.search.records import Solved
from tilewise.search.space.space import Space
from tilewise.search.transfer.nearness import distance


@pytest.mark.parametrize("text", UNSEEN.values())
def test_relatives_serve_the_problem_and_are_another(text):
    problem = parse_problem(text)
    space = Space(problem, detect())
    for near in relatives(problem).values():
        solved = Solved(near, detect().canonical, ())
        assert 0 < distance(space, solved) <= 2.5
        assert near.flops != problem.flops


def test_a_convolutions_pixels_are_doubled_whatever_its_stride_and_padding():
    text = "conv2d:n=2,h=23,w=31,ci=8,co=9,kh=5,kw=3,stride=2,dilation=2,pad=1,dtype=f32"
    problem = parse_problem(text)
    rows, cols = relatives(problem)["rows"], relatives(problem)["cols"]
    assert (rows.oh, rows.ow) == (2 * problem.oh, 2 * problem.ow)
    assert cols.co == 5


@pytest.mark.full
def test_cold_and_warm_searches_are_compared_by_what_they_found_together():
    problem = parse_problem("matmul:m=24,n=40,k=16,dtype=f32")
    assert isinstance(problem, Matmul)
    row = compare(problem, seeds=1, trials=5, costs=None)
    best, close, wide = (int(word) for word in row.among.split(" of "))
    assert 1 <= best <= close <= wide <= 10
    assert min(row.cold + row.warm) <= 5
    assert all(1 <= count <= 6 for count in row.cold + row.warm)
