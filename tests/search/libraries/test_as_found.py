"""Ops whose operands lie in another order are measured as a module has them."""

import numpy as np
import pytest

from tests.kernels.dispatches.extraction.test_cut import contraction, shapes_of
from tests.search.peers.test_peers import require
from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.dispatches.extraction.extract import cut_module
from tilewise.kernels.dispatches.patterns.pattern import Pattern
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Register, Schedule, Tile
from tilewise.kernels.target import resolve
from tilewise.search.libraries import library
from tilewise.search.libraries.gain import Gain, measured_as_found
from tilewise.search.libraries.library import judged

LETTERS = "hik,kj->ihj"


def entry(around: str, *, is_constant: bool = False) -> tuple[LibraryEntry, Pattern]:
    """A kernel that is no good, and the pattern of an op that it stands for."""
    module = contraction("f32", LETTERS, shapes_of(LETTERS), around)
    if is_constant:
        weights, values = "tensor<19x32xf32>", np.arange(19 * 32, dtype=np.float32).tobytes().hex()
        module = module.replace(f"%b: {weights}, ", "").replace(
            "%zero =",
            f'%b = arith.constant dense<"0x{values}"> : {weights}\n%zero =',
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
def test_all_forms_are_timed_and_the_kernels_result_is_right(
    around: str, *, is_constant: bool
) -> None:
    require("iree+tilewise")
    kernel, pattern = entry(around, is_constant=is_constant)
    gain = measured_as_found(kernel, pattern, resolve("host").canonical, 0.05)
    assert not gain.failure
    assert gain.matched and gain.library_us and gain.max_error is not None
    assert set(gain.alone_us or {}) == {"default", "data tiling"}


def test_the_faster_of_kernel_and_iree_is_taken_and_both_times_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel, pattern = entry("%z")
    wanted = kernel
    for kernel_us, reasons in ((9.0, ()), (11.0, ("IREE alone is faster: 10.0 us (data tiling), "
                                                  "11.0 us with the kernel",))):  # fmt: skip
        gain = Gain(True, 0.0, 1.0, kernel_us, None, {"default": 30.0, "data tiling": 10.0})
        monkeypatch.setattr(library, "measured_as_found", lambda *_, found=gain: found)
        worth = judged(wanted, [pattern], resolve("host").canonical)
        assert worth.gain == gain
        assert worth.patterns == (() if reasons else (pattern,))
        assert worth.reasons == reasons


def test_iree_alone_on_the_problems_own_module_does_not_decide_for_a_models_op(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IREE is slow where products are added by `math.fma`, and fast on a matmul."""
    module = contraction("f32", "mk,kn->mn", [(8, 16), (16, 32), (8, 32)], "%z")
    added = "%p = arith.mulf %x, %y : f32\n          %s = arith.addf %w, %p : f32"
    assert added in module
    module = module.replace(added, "%s = math.fma %x, %y, %w : f32")
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


@pytest.mark.full
@pytest.mark.parametrize("letters", ["mk,kn->mn", LETTERS])
@pytest.mark.parametrize(("around", "start"), [("%z", "0.0"), ("%z", "0.5"), ("%c", "0.0")])
def test_ops_in_the_problems_order_and_biases_that_are_numbers_are_measured_too(
    letters: str, around: str, start: str
) -> None:
    require("iree+tilewise")
    module = contraction("f32", letters, shapes_of(letters), around)
    (cut,) = cut_module(module.replace("constant 0.0", f"constant {start}").encode())
    assert cut.pattern is not None
    assert any(cut.pattern.turns) == (letters == LETTERS)
    assert bool(cut.pattern.bias) == (start != "0.0")
    host = resolve("host")
    kernel = LibraryEntry(parse_problem(cut.problem), Schedule((Register(1, host.lanes("f32")),)))
    gain = measured_as_found(kernel, cut.pattern, host.canonical, 0.05)
    assert not gain.failure
    assert gain.max_error is not None and gain.library_us
