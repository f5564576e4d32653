"""Ranges of problems: what they are written as, which problems they hold, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem import ProblemRange, parse_any, parse_problem, parse_range

RANGE = "matmul:m=1..512,n=4096,k=4096,dtype=bf16,weights=constant"


@pytest.mark.parametrize(
    ("text", "canonical", "dim", "sizes"),
    [
        (RANGE, RANGE, "m", range(1, 513)),
        (
            "matmul: dtype=f32, k=8, n=9, m=1..512:8",
            "matmul:m=8..512:8,n=9,k=8,dtype=f32",
            "m",
            range(8, 513, 8),
        ),
        (
            "matmul:batch=1..12,m=4,n=9,k=8,dtype=f32,init=zero",
            "matmul:batch=1..12,m=4,n=9,k=8,dtype=f32",
            "batch",
            range(1, 13),
        ),
        (
            '{"op": "conv2d", "n": "2..32:5", "h": 7, "w": 7, "ci": 3, "co": 8, "kh": 3, "kw": 3, '
            '"dtype": "f32"}',
            "conv2d:n=5..30:5,h=7,w=7,ci=3,co=8,kh=3,kw=3,dtype=f32",
            "n",
            range(5, 31, 5),
        ),
    ],
)
def test_a_range_has_one_string(text: str, canonical: str, dim: str, sizes: range) -> None:
    found = parse_range(text)
    assert (found.canonical, found.dim, found.sizes) == (canonical, dim, sizes)
    assert parse_range(found.canonical) == found == parse_range(found.to_json())
    assert parse_range(found.canonical).key == found.key


@given(st.integers(1, 512))
def test_each_size_is_a_problem_of_the_range(size: int) -> None:
    found = parse_range(RANGE)
    problem = found.at(size)
    assert problem == parse_problem(RANGE.replace("1..512", str(size)))
    assert found.holds(problem)
    assert not found.holds(parse_problem({**problem.to_json(), "bias": True}))


def test_other_sizes_are_no_problems_of_the_range() -> None:
    found = parse_range("matmul:m=8..64:8,n=9,k=8,dtype=f32")
    for size in (0, 7, 9, 72):
        with pytest.raises(ProblemError, match=rf"m={size} is not in 8\.\.64:8"):
            found.at(size)
    assert not found.holds(parse_problem("matmul:m=12,n=9,k=8,dtype=f32"))


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("matmul:m=4,n=9,k=8,dtype=f32", "problem", "one size has a range.*none has one"),
        ("matmul:m=1..4,n=2..9,k=8,dtype=f32", "m", "m and n have one"),
        ("matmul:m=4..4,n=9,k=8,dtype=f32", "m", "holds no two sizes"),
        ("matmul:m=9..4,n=9,k=8,dtype=f32", "m", "holds no two sizes"),
        ("matmul:m=1..9:0,n=9,k=8,dtype=f32", "m", "holds no two sizes"),
        ("matmul:m=1..9999,n=9,k=8,dtype=f32", "m", "has 9999 sizes, more than 4096"),
        ("matmul:m=1..4000000000:4000000,n=9,k=8,dtype=f32", "m", "out of range"),
        ("matmul:m=1..4,n=9,k=8,dtype=f33", "dtype", "f33"),
        ("conv2d:n=1,h=7..9,w=7,ci=3,co=8,kh=3,kw=3,dtype=f32", "h", "sizes that may have one"),
        (
            "matmul:m=4,n=9,k=32..96:32,dtype=f32,b=i4,group=64,weights=constant",
            "k",
            "changes other keys",
        ),
    ],
)
def test_what_is_no_range_is_refused(text: str, field: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message) as raised:
        parse_range(text)
    assert raised.value.field == field


def test_either_is_read() -> None:
    assert isinstance(parse_any(RANGE), ProblemRange)
    assert parse_any("matmul:m=4,n=9,k=8,dtype=f32") == parse_problem(
        "matmul:m=4,n=9,k=8,dtype=f32"
    )
    with pytest.raises(ProblemError, match="is a range; give one size"):
        parse_problem(RANGE)
