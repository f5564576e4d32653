"""Strassen's method in a space: where it is offered, and what its points mean."""

from random import Random

import pytest

from tests.search.targets import FAR, NARROW, WIDE
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Parallel, Prefetch, check_legal
from tilewise.search.space.algorithms import (
    ALGORITHM,
    LEAST,
    WANTED,
    algorithm_of,
    nearest_algorithm,
)
from tilewise.search.space.space import Space

LARGE = "matmul:m=512,n=4096,k=4096,dtype=f32,weights=constant"
VARIABLE = "matmul:m=2048,n=2048,k=2048,dtype=f32"
ALL = ("direct", "strassen1", "strassen2")


def algorithms(text: str) -> tuple[object, ...]:
    return Space(parse_problem(text), WIDE).values(ALGORITHM)


def test_it_is_offered_where_all_dims_are_long() -> None:
    assert algorithms(LARGE) == algorithms(VARIABLE) == ALL
    assert (
        algorithms("matmul:m=64,n=512,k=512,dtype=f64,transpose_b,bias,weights=constant") == ALL[:2]
    )
    pixels = "conv2d:n=1,h=14,w=14,ci=1024,co=512,kh=1,kw=1,dtype=f32,weights=constant"
    assert algorithms(pixels) == ALL[:2]
    for text in (
        "matmul:m=63,n=512,k=512,dtype=f32,weights=constant",
        "matmul:m=64,n=510,k=512,dtype=f32,weights=constant",
        "matmul:m=64,n=512,k=510,dtype=f32,weights=constant",
        "matmul:m=64,n=513,k=515,dtype=f32,weights=constant",
        "matmul:m=512,n=4096,k=4096,dtype=f32",
        f"{LARGE},accuracy=strict",
        LARGE.replace("f32", "bf16"),
        f"{pixels},stride=2",
        f"{pixels},layout=nchw_fchw",
    ):
        assert algorithms(text) == (), text


def test_a_dim_that_has_halves_alone_has_one_level() -> None:
    rows, cols, depth = LEAST[2]
    text = f"matmul:m={rows},n={cols + 2},k={depth},dtype=f32,weights=constant"
    assert algorithms(text) == ALL[:2]


@pytest.mark.parametrize("target", [WIDE, NARROW])
@pytest.mark.parametrize("text", [LARGE, VARIABLE])
def test_every_point_is_a_legal_schedule(text: str, target: object) -> None:
    space, random = Space(parse_problem(text), target), Random(5)  # type: ignore[arg-type]
    seen = set()
    for _ in range(60):
        point = space.draw(random) | {ALGORITHM: random.choice(ALL[1:])}
        schedule = space.schedule(point)
        check_legal(space.problem, schedule)
        assert algorithm_of(point) == {"strassen": schedule.algorithm.size}
        assert (Prefetch("B") in schedule.steps) == point["prefetch"]
        seen.add(schedule.hash)
    assert len(seen) > 40


def constant(rows: int, cols: int = 512, depth: int = 512) -> Space:
    """The space of a product on a server whose last cache is far."""
    return Space(
        parse_problem(f"matmul:m={rows},n={cols},k={depth},dtype=f32,weights=constant"), FAR
    )


def test_a_division_of_rows_divides_groups_of_rows() -> None:
    target = WIDE.with_threads(2)
    space = Space(parse_problem(LARGE), target)
    base = space.draw(Random(1)) | {ALGORITHM: "strassen1", WANTED: 0}
    found = {
        value: space.schedule(base | {"parallel": value}) for value in space.values("parallel")
    }
    divided = {step for schedule in found.values() for step in schedule.steps}
    assert {step.dim for step in divided if isinstance(step, Parallel)} == {"t", "n"}


def test_a_transferred_algorithm_stays_of_its_kind() -> None:
    assert nearest_algorithm(ALL, "strassen2") == "strassen2"
    assert nearest_algorithm(ALL[:2], "strassen2") == "strassen1"
    assert nearest_algorithm(ALL, "winograd4") == "direct"
    assert nearest_algorithm(("direct", "winograd2", "winograd4"), "strassen1") == "direct"
    assert nearest_algorithm(("direct", "winograd2", "winograd4"), "winograd3") == "winograd4"


def test_the_schedule_reads_back() -> None:
    assert algorithm_of({ALGORITHM: "strassen2"}) == {"strassen": 2}
    assert algorithm_of({}) == {}
