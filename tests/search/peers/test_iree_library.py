"""IREE with our kernel inside: right on random operands, whatever the kernel is made of."""

import numpy as np
import pytest

from tests.search.peers.test_peers import Case, make_case, require
from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.dispatches.library import library_text
from tilewise.kernels.target import Target, resolve
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.peers import iree
from tilewise.search.peers.iree import Maker
from tilewise.search.peers.screen import screened
from tilewise.search.peers.variant import PeerAbsentError
from tilewise.search.records import OWN
from tilewise.search.space.space import Space

PRODUCT, IMAGE = "matmul:m=37,n=65,k=29,dtype=", "conv2d:n=1,h=9,w=11,ci=16,co=24,kh=3,kw=3,pad=1"
PROBLEMS = [
    PRODUCT + "f32,bias,epilogue=relu",
    PRODUCT + "bf16,weights=constant,transpose_b",
    PRODUCT + "i8,transpose_a,bias",
    PRODUCT + "f64,init=accumulate,epilogue=relu",
    "matmul:m=1,n=300,k=129,dtype=f32,weights=constant",
    "matmul:batch=3,m=9,n=21,k=17,dtype=f32,transpose_b",
    f"{IMAGE},dtype=f32,layout=nchw_fchw,bias,epilogue=relu,weights=constant",
    "conv2d:n=1,h=9,w=7,ci=16,co=16,kh=3,kw=3,groups=16,pad=1,dtype=f32,bias,epilogue=relu6",
]


def maker(case: Case, threads: int = 1, winograd: int = 0) -> Maker:
    """A peer with the schedule that the model likes best, or the best of Winograd's."""
    target = resolve("host" if threads == 1 else f"cpu:host,threads={threads}")
    space = Space(case.problem, target)
    liked = map(space.schedule, prior_points(AnalyticalModel.shipped(space), 40))
    sizes = ((one, one.algorithm.size if one.algorithm else 0) for one in liked)
    return Maker(next(one for one, size in sizes if size >= winograd), target)


@pytest.mark.full
@pytest.mark.parametrize("text", PROBLEMS)
def test_iree_computes_rightly_with_our_kernel(text: str) -> None:
    require("iree+tilewise")
    case = make_case(text)
    (way,) = screened(maker(case).variants, case.bench)
    assert way.variant.peer in OWN
    assert way.error <= way.tolerance


@pytest.mark.full
@pytest.mark.parametrize("text", PROBLEMS[:2] + PROBLEMS[6:7])
def test_two_threads_give_what_one_gives(text: str) -> None:
    require("iree+tilewise")
    results = []
    for threads in (1, 2):
        case = make_case(text)
        (variant,) = maker(case, threads).variants(case.problem, case.operands, threads)
        assert case.why_wrong(variant) is None
        results.append(variant.result().copy())
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)


def test_weights_for_winograd_are_packed_once() -> None:
    """They grow; were they packed in each run, a change of theirs would be seen."""
    require("iree+tilewise")
    case = make_case(f"{IMAGE},dtype=f32,weights=constant")
    (variant,) = maker(case, winograd=2).variants(case.problem, case.operands, 1)
    variant.run(1)
    before = variant.result().copy()
    case.operands["B"][...] = 0
    variant.run(1)
    np.testing.assert_array_equal(variant.result(), before)


def test_a_problem_that_no_pattern_matches_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    require("iree+tilewise")
    case, other = make_case(PRODUCT + "f32"), make_case("matmul:m=37,n=65,k=28,dtype=f32")
    made = maker(other)

    def of_another(_: object, target: Target) -> str:
        return library_text([LibraryEntry(other.problem, made.schedule)], target)

    monkeypatch.setattr(iree, "library_text", of_another)
    with pytest.raises(PeerAbsentError, match="no pattern"):
        screened(made.variants, case.bench)
