"""The kernel of a range computes the sizes of the range, and IREE's own code the others."""

from dataclasses import replace

import numpy as np
import pytest

from tests.search.peers.test_peers import require
from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.dispatches.patterns.any_size import (
    of_size,
    range_patterns,
)
from tilewise.kernels.dispatches.patterns.pattern import (
    ENTRY,
    SCOPE,
    WEIGHTS,
    module_of_contraction,
)
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.iree.runtime import LoadedModule, Parameters, open_device
from tilewise.kernels.native.range_plan import served_sizes
from tilewise.kernels.oracle.operands import empty_aligned, make_operands, poison
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import ProblemRange, parse_problem, parse_range
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target, resolve
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space

RANGES = [
    ("matmul:m=4..64:4,n=48,k=96,dtype=f32,bias,weights=constant", [(1,), (6,), (68,)]),
    ("matmul:batch=2..4,m=1..9,n=32,k=24,dtype=bf16", [(3, 10), (5, 9), (1, 4)]),
    ("conv2d:n=1..4,h=6,w=6,ci=16,co=16,kh=3,kw=3,dtype=f32", [(5,)]),
]


def first_schedule(problems: ProblemRange, target: Target) -> RangeSchedule:
    """The model's first schedule for the largest size that serves all sizes."""
    space, sizes = Space(problems.at(problems.sizes[-1]), target), problems.sizes
    found = next(
        one for one in map(space.schedule, prior_points(AnalyticalModel.shipped(space), 200))
        if isinstance(one, Schedule) and len(served_sizes(problems, one, target)) == len(sizes)
    )  # fmt: skip
    return RangeSchedule(problems, (found,), (0,) * len(sizes))


@pytest.mark.full
@pytest.mark.parametrize(("text", "outside"), RANGES)
def test_sizes_of_a_range_call_the_kernel_and_others_are_iree_s_own(
    text: str, outside: list[tuple[int, ...]]
) -> None:
    """The kernel also takes the relu, which the module does not, so that its results differ."""
    require("iree+tilewise")
    plain, own, target = parse_range(text), parse_range(f"{text},epilogue=relu"), resolve("host")
    made = compiled(LibraryEntry(own.smallest, first_schedule(own, target)), target)
    kernel = replace(made, problem=plain.smallest, found=plain.smallest, sizes=plain)
    pattern, constant = range_patterns(plain)[0], plain.smallest.has_constant_weights
    module = module_of_contraction(pattern, has_constant_weights=constant)
    code = compiled_with(module, text_of([kernel], target)).code
    inside = [plain.sizes[0], plain.sizes[len(plain.sizes) // 2], plain.sizes[-1]]
    for size in (*inside, *outside):
        sizes = dict(zip(plain.dims, size, strict=True))
        problem = parse_problem({**plain.smallest.to_json(), **sizes})
        operands = make_operands(problem)
        given = [(operands[name], "") for name in ("A", "B", *problem.extras)]
        given = [
            (array.reshape(value.shape or ()), value.element)
            for (array, _), value in zip(given, of_size(pattern, size).operands, strict=True)
        ]
        weights = Parameters(SCOPE, {WEIGHTS: given.pop(1)[0]}) if constant else None
        shape = of_size(pattern, size).result.shape or ()
        out = empty_aligned(shape, operands["C"].dtype.type)
        poison(out)
        result = (out, pattern.result.element)
        LoadedModule(code, open_device(1), weights).bind(ENTRY, [*given, result])(1)
        exact = reference(problem, operands).value.reshape(shape)
        assert (exact < 0).any()
        expected = np.maximum(exact, 0) if size in inside else exact
        np.testing.assert_allclose(out, expected, rtol=1e-2, atol=1e-2, err_msg=f"{size}")


def test_ranges_that_add_to_their_result_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="give a single size"):
        range_patterns(parse_range("matmul:m=1..8,n=32,k=24,dtype=f32,init=accumulate"))
