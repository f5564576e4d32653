"""Ranges of problems: what they are written as, which problems they hold, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem import ProblemRange, parse_any, parse_problem, parse_range

RANGE = "matmul:m=1..512,n=4096,k=4096,dtype=bf16,weights=constant"
KEY = "8eef889a6c765464f7a59c6660ff4c1481a5ee6677df9d518e51cf551bcef2c7"


@pytest.mark.parametrize(
    ("text", "canonical", "ranges"),
    [
        (RANGE, RANGE, {"m": range(1, 513)}),
        (
            "matmul: dtype=f32, k=8, n=9, m=1..512:8",
            "matmul:m=8..512:8,n=9,k=8,dtype=f32",
            {"m": range(8, 513, 8)},
        ),
        (
            "matmul:batch=1..12,m=4,n=9,k=8,dtype=f32,init=zero",
            "matmul:batch=1..12,m=4,n=9,k=8,dtype=f32",
            {"batch": range(1, 13)},
        ),
        (
            "matmul:k=8..64:8,n=9,m=4,dtype=f32,batch=1..8",
            "matmul:batch=1..8,m=4,n=9,k=8..64:8,dtype=f32",
            {"batch": range(1, 9), "k": range(8, 65, 8)},
        ),
        (
            '{"op": "conv2d", "n": "2..32:5", "h": 7, "w": 7, "ci": 3, "co": 8, "kh": 3, "kw": 3, '
            '"dtype": "f32"}',
            "conv2d:n=5..30:5,h=7,w=7,ci=3,co=8,kh=3,kw=3,dtype=f32",
            {"n": range(5, 31, 5)},
        ),
    ],
)
def test_a_range_has_one_string(text: str, canonical: str, ranges: dict[str, range]) -> None:
    found = parse_range(text)
    assert found.canonical == canonical
    assert (found.dims, found.ranges) == (tuple(ranges), tuple(ranges.values()))
    assert parse_range(found.canonical) == found == parse_range(found.to_json())
    assert parse_range(found.canonical).key == found.key


@given(st.integers(1, 7), st.integers(1, 70))
def test_each_size_is_a_problem_of_the_range(batch: int, m: int) -> None:
    found = parse_range("matmul:batch=2..6,m=8..64:8,n=9,k=8,dtype=f32")
    problem = parse_problem(f"matmul:batch={batch},m={m},n=9,k=8,dtype=f32")
    assert found.size_of(problem) == (batch, m)
    assert found.holds(problem) == ((batch, m) in found.sizes)
    assert not found.holds(parse_problem({**problem.to_json(), "bias": True}))
    assert not found.holds(parse_problem("conv2d:n=8,h=7,w=7,ci=3,co=8,kh=3,kw=3,dtype=f32"))
    if found.holds(problem):
        assert found.at((batch, m)) == problem
    else:
        text = rf"m={m} is not in 8\.\.64:8|batch={batch} is not in 2\.\.6"
        with pytest.raises(ProblemError, match=text):
            found.at((batch, m))


def test_keys_of_ranges_stay() -> None:
    assert parse_range(RANGE).key == KEY


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        ("matmul:m=4,n=9,k=8,dtype=f32", "problem", "one or two sizes have.*none has one"),
        ("matmul:m=1..4,n=2..9,k=8..9,dtype=f32", "m", "m and n and k have one"),
        ("matmul:m=4..4,n=9,k=8,dtype=f32", "m", "holds no two sizes"),
        ("matmul:m=9..4,n=9,k=8,dtype=f32", "m", "holds no two sizes"),
        ("matmul:m=1..9:0,n=9,k=8,dtype=f32", "m", "holds no two sizes"),
        ("matmul:m=1..9999,n=9,k=8,dtype=f32", "m", "9999 sizes in m='1..9999', more than 4096"),
        ("matmul:k=1..99,m=1..99,n=9,dtype=f32", "m", "9801 sizes in m='1..99' and k='1..99'"),
        ("matmul:m=1..4000000000:4000000,n=9,k=8,dtype=f32", "m", "out of range"),
        ("matmul:m=1..9,n=9,k=8..9,dtype=f32,weights=constant", "k", "changes their shape"),
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
