"""Problems written as modules for IREE are read back as what they are."""

import random
import re

import pytest

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.problem import DTYPES, Problem, parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

SIZES = (2, 3, 5, 7, 12)
COUNT = 150


def random_problem(rng: random.Random) -> Problem:
    """Any key at any value; sizes of 1 alone are left out, since they can be read in many ways."""
    flags: dict[str, object] = {
        # Modules widen unsigned bytes ahead, which is read back of matmuls alone.
        "dtype": rng.choice([name for name in DTYPES if name != "u8"]),
        "bias": rng.random() < 0.5,
        "epilogue": rng.choice(("none", "relu")),
        "weights": rng.choice(("variable", "constant")),
    }
    if rng.random() < 0.4:
        sizes: dict[str, object] = {name: rng.choice(SIZES) for name in "mnk"}
        return parse_problem(
            {"op": "matmul", "batch": rng.choice((1, 3)), **sizes, **flags,
             "transpose_a": rng.random() < 0.3, "transpose_b": rng.random() < 0.3,
             "init": rng.choice(("zero", "accumulate"))}
        )  # fmt: skip
    groups = rng.choice((1, 1, 2, 4))
    ci, co = groups * rng.choice((1, 2, 3)), groups * rng.choice((1, 2, 5))
    if groups == 1:
        ci, co = max(ci, 2), max(co, 2)
    return parse_problem(
        {"op": "conv2d", "n": rng.choice((1, 2)), "h": rng.choice((7, 9)), "w": rng.choice((8, 11)),
         "ci": ci, "co": co, "kh": rng.choice((1, 2, 3)), "kw": rng.choice((1, 3)),
         "stride": rng.choice((1, 2)), "dilation": rng.choice((1, 2)), "pad": rng.choice((0, 1, 2)),
         "groups": groups, "layout": rng.choice(("nhwc_hwcf", "nchw_fchw")), **flags}
    )  # fmt: skip


def expected(problem: Problem) -> str:
    """The problem as it can be read: a dilation of a window of one is not seen."""
    told = problem.to_json()
    if told["op"] == "conv2d" and told["kh"] == told["kw"] == 1:
        told.pop("dilation", None)
    return parse_problem(told).canonical


def test_problems_are_read_back_from_their_modules() -> None:
    rng = random.Random(7)
    problems = list[Problem]()
    while len(problems) < COUNT:
        try:
            problems.append(random_problem(rng))
        except ProblemError:  # a window larger than its image
            continue
    texts = [
        re.sub("@(kernel|weights)", rf"@\g<1>{i}", module_text(problem))
        for i, problem in enumerate(problems)
    ]
    imported = read_module("\n".join(texts).encode())
    assert not imported.skipped
    read = {one.where.split()[0]: one for one in imported.occurrences}
    for i, problem in enumerate(problems):
        found = read[f"@kernel{i}"]
        assert found.problem == expected(problem), texts[i]
        assert found.is_plain
    assert len(read) == COUNT
