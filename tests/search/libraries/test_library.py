"""Libraries hold the kernels that make IREE faster, and say what they leave out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.kernels.dispatches.test_extraction import contraction, shapes_of
from tests.search.peers.test_peers import require
from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.dispatches.extraction.extract import cut_module
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.errors import ProofError
from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Register, Schedule, Tile
from tilewise.kernels.target import resolve
from tilewise.search.libraries import library
from tilewise.search.libraries.gain import Gain, measured, measured_as_found
from tilewise.search.libraries.library import judged, proven_library
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space

SMALL, OTHER = "matmul:m=37,n=65,k=29,dtype=f32", "matmul:m=37,n=65,k=30,dtype=f32"
FAST = Gain(True, 1e-6, 1e-3, 10.0, 9.0, {"default": 20.0, "data tiling": 15.0})


def wanted(text: str) -> LibraryEntry:
    problem = parse_problem(text)
    space = Space(problem, resolve("host"))
    (point,) = prior_points(AnalyticalModel.shipped(space), 1)
    return LibraryEntry(problem, space.schedule(point))


def made(monkeypatch: pytest.MonkeyPatch, gains: dict[str, Gain]) -> library.ProvenLibrary:
    """The library of problems with these gains, as if they had been measured."""

    def told(problem: Any, _steps: Any, _target: str, _budget_s: float) -> Gain:
        return gains[problem.canonical]

    monkeypatch.setattr(library, "measured", told)
    return proven_library([wanted(text) for text in gains], resolve("host").canonical)


@pytest.mark.full
def test_a_kernel_is_measured_inside_iree() -> None:
    require("iree+tilewise")
    one = wanted(SMALL)
    gain = measured(one.problem, one.schedule.to_json(), resolve("host").canonical, budget_s=0.05)
    assert gain.matched and gain.max_error <= gain.tolerance
    assert set(gain.alone_us) <= {"default", "data tiling"}
    assert gain.ratio == pytest.approx(min(gain.alone_us.values()) / gain.library_us)


@pytest.mark.full
def test_a_range_is_compared_and_timed_at_several_sizes() -> None:
    require("iree+tilewise")
    problems = parse_range("matmul:m=8..64:8,n=65,k=29,dtype=f32,weights=constant")
    schedule = wanted("matmul:m=64,n=65,k=29,dtype=f32,weights=constant").schedule
    whole = RangeSchedule(problems, (schedule,), (0,) * len(problems.sizes))
    entry = LibraryEntry(problems.smallest, whole)
    gain = library.judged(entry, (), resolve("host").canonical, 0.02).gain
    assert gain.matched and not gain.failure and gain.max_error <= gain.tolerance
    assert set(gain.alone_us) == {"default", "data tiling"} and gain.library_us


def test_where_iree_alone_is_faster_the_kernel_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(FAST, library_us=15.1)
    found = made(monkeypatch, {SMALL: FAST, OTHER: slow})
    assert [row.to_json()["served"] for row in found.rows] == [True, False]
    left_out = f"// Left out: {OTHER}: IREE alone is faster: 15.0 us (data tiling), 15.1 us"
    assert left_out in found.text
    assert "k30" not in found.text
    with pytest.raises(ProofError, match=r"m=37.*it was wrong"):
        made(monkeypatch, {SMALL: replace(FAST, failure="it was wrong")})


LETTERS = "hik,kj->ihj"


def entry(around: str, *, is_constant: bool = False) -> tuple[LibraryEntry, Pattern]:
    """A kernel that is no good, and the pattern of an op that it stands for."""
    module = contraction("f32", LETTERS, shapes_of(LETTERS), around)
    if is_constant:
        weights, values = "tensor<19x32xf32>", np.arange(19 * 32, dtype=np.float32).tobytes().hex()
        module = module.replace(f"%b: {weights}, ", "").replace(
            "%zero =", f'%b = arith.constant dense<"0x{values}"> : {weights}\n%zero ='
        )
    (cut,) = cut_module(module.encode())
    assert cut.pattern is not None, cut.reason
    assert any(cut.pattern.turns)
    problem = parse_problem(cut.problem)
    assert problem.has_constant_weights == is_constant
    steps = [Tile("batch", 1)] if "batch=" in cut.problem else []
    lanes = resolve("host").lanes("f32")
    return LibraryEntry(problem, Schedule((*steps, Register(1, lanes)))), cut.pattern


@pytest.mark.full
@pytest.mark.parametrize(("around", "is_constant"), [("%z", False), ("%c", False), ("%z", True)])
def test_all_forms_are_timed_and_the_kernels_result_is_right(around, is_constant) -> None:
    require("iree+tilewise")
    kernel, pattern = entry(around, is_constant=is_constant)
    gain = measured_as_found(kernel, pattern, resolve("host").canonical, 0.05)
    assert not gain.failure
    assert gain.matched and gain.library_us and gain.max_error is not None
    assert set(gain.alone_us or {}) == {"default", "data tiling"}


def test_the_faster_of_kernel_and_iree_is_taken_and_both_times_are_told(monkeypatch) -> None:
    wanted, pattern = entry("%z")
    problems = parse_range("matmul:m=1..2,n=8,k=8,dtype=f32")
    ranged = replace(wanted, schedule=RangeSchedule(problems, (wanted.schedule,), (0, 0)))
    for kernel_us, reasons in ((9.0, ()), (11.0, ("IREE alone is faster: 10.0 us (data tiling), "
                                                  "11.0 us with the kernel",))):  # fmt: skip
        gain = Gain(True, 0.0, 1.0, kernel_us, None, {"default": 30.0, "data tiling": 10.0})
        monkeypatch.setattr(library, "measured_as_found", lambda *_, found=gain: found)
        for one in (wanted, ranged):
            worth = judged(one, [pattern], resolve("host").canonical)
            assert worth.gain == gain
            assert worth.patterns == (() if reasons else (pattern,))
            assert worth.reasons == reasons


def test_iree_alone_on_the_problems_own_module_does_not_decide_for_a_models_op(monkeypatch) -> None:
    """IREE is slow where products are added by `math.fma`, and fast on a matmul."""
    module = contraction("f32", "mk,kn->mn", [(8, 16), (16, 32), (8, 32)], "%z")
    added = "%m = arith.mulf %x0, %x1 : f32\n    %end = arith.addf %o, %m : f32"
    assert added in module
    module = module.replace(added, "%end = math.fma %x0, %x1, %o : f32")
    (cut,) = cut_module(module.encode())
    assert cut.pattern is not None and not any(cut.pattern.turns)
    schedule = Schedule((Register(1, resolve("host").lanes("f32")),)).to_json()
    wanted = LibraryEntry.of(parse_problem(cut.problem), schedule)
    for iree_us, kept in ((200.0, (cut.pattern,)), (6.0, ())):
        slower = Gain(True, 0.0, 1.0, 7.0, 6.5, {"default": 6.0})
        found = Gain(True, 0.0, 1.0, 7.0, None, {"default": iree_us})
        monkeypatch.setattr(library, "measured", lambda *_, gain=slower: gain)
        monkeypatch.setattr(library, "measured_as_found", lambda *_, gain=found: gain)
        worth = judged(wanted, [cut.pattern], resolve("host").canonical)
        assert worth.patterns == kept
        assert worth.gain.is_served == bool(kept)
