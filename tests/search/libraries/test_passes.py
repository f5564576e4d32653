"""Passes over rows inside IREE: measured, and left out with a reason."""

from dataclasses import replace

import pytest

from tests.search.peers.test_peers import require
from tilewise.kernels.dispatches.compilation import Replaced
from tilewise.kernels.dispatches.cutting.cut import cut_apart
from tilewise.kernels.dispatches.passes.row_pass import RowPass, Uses
from tilewise.kernels.system.limited_child import Ended
from tilewise.kernels.target import resolve
from tilewise.search.libraries import passes
from tilewise.search.libraries.passes import (
    LEAST_GAIN_US,
    Compared,
    PassRow,
    compiled_passes,
    measured_passes,
)

CHAIN = """
func.func @main(%x: tensor<300x70xf32>) -> tensor<300x70xf32> {
  %half = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<300x70xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>,
      affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<300x70xf32>) outs(%e : tensor<300x70xf32>) {
  ^bb0(%a: f32, %o: f32):
    %1 = arith.mulf %a, %half : f32
    %2 = math.exp %1 : f32
    linalg.yield %2 : f32
  } -> tensor<300x70xf32>
  return %r : tensor<300x70xf32>
}
"""


def overwriting(read: str) -> RowPass:
    """The pass of a module's last op, which may overwrite what the first one makes."""
    kind = "tensor<32x32x32xf32>"
    module = f"""
      #own = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
      #other = affine_map<(d0, d1, d2) -> (d1, d0, d2)>
      func.func @main(%x: {kind}) -> {kind} {{
        %e = tensor.empty() : {kind}
        %y = linalg.generic {{indexing_maps = [#own, #own],
            iterator_types = ["parallel", "parallel", "parallel"]}}
          ins(%x : {kind}) outs(%e : {kind}) {{
        ^bb0(%a: f32, %o: f32):
          %1 = math.sin %a : f32
          linalg.yield %1 : f32
        }} -> {kind}
        %r = linalg.generic {{indexing_maps = [{read}, #own],
            iterator_types = ["parallel", "parallel", "parallel"]}}
          ins(%y : {kind}) outs(%e : {kind}) {{
        ^bb0(%a: f32, %o: f32):
          %1 = math.exp %a : f32
          linalg.yield %1 : f32
        }} -> {kind}
        return %r : {kind}
      }}"""
    (one,) = cut_apart(module.encode()).passes
    return one


@pytest.fixture(scope="module")
def chain() -> RowPass:
    (one,) = cut_apart(CHAIN.encode()).passes
    return one


def test_a_pass_is_found_compared_and_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    require("iree+tilewise")
    monkeypatch.setattr(passes, "BUDGET_S", 0.05)
    chain = overwriting("#own")
    assert chain.overwrites == 0
    twice = replace(chain, where=("@other",))
    (row,) = measured_passes([chain, twice], (), resolve("host"))
    assert row.found.overwrites == 0
    assert row.failure == ""
    assert row.max_error is not None and row.tolerance is not None
    assert 0 < row.max_error <= row.tolerance
    assert row.alone_us is not None and row.library_us is not None
    assert row.found.where == (*chain.where, "@other")
    told = row.to_json()
    assert told["count"] == 2 and told["served"] == (not row.reason)
    assert told["ratio"] == pytest.approx(row.alone_us / row.library_us)


def test_a_pass_that_is_wrong_over_its_operand_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that reads rows in another order is right in memory of its own alone."""
    require("iree+tilewise")
    monkeypatch.setattr(passes, "BUDGET_S", 0.02)
    turned = overwriting("#other")
    assert turned.overwrites is None
    wrong = replace(turned, overwrites=0, kept=(Uses((0,), 1),))
    (row,) = measured_passes([wrong], (), resolve("host"))
    assert row.served is None
    assert row.reason.startswith("its result, written over its operand, is off by")


def test_a_reason_is_one_line_whatever_a_child_said(
    chain: RowPass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "compile_module", lambda _: b"")
    monkeypatch.setattr(passes, "compiled_with", lambda *_: Replaced(b"", ("rows",)))
    monkeypatch.setattr(passes, "run_limited", lambda *_: Ended(None, "crash", "first\nsecond"))
    (row,) = measured_passes([chain], (), resolve("host"))
    assert row.reason == "crash: first second"


def test_a_pass_after_a_product_of_irees_own_is_left_to_it(chain: RowPass) -> None:
    after = replace(chain, after=("matmul:m=2,n=3,k=4,dtype=f32",))
    (row,) = compiled_passes([after], ("matmul:m=2,n=3,k=5,dtype=f32",), resolve("host"))
    assert row.served is None
    assert row.reason == "IREE joins it to matmul:m=2,n=3,k=4,dtype=f32, which is left to it"
    (row,) = compiled_passes([after], after.after, resolve("host"))
    assert row.served is not None and row.reason == ""


def test_a_wrong_or_a_slow_pass_is_left_out(chain: RowPass) -> None:
    (row,) = compiled_passes([chain], (), resolve("host"))
    exact = Compared(1e-9, 1.0, (1e-5,), (2e-5,))
    assert passes._judged(row, exact).served is not None
    wrong = passes._judged(row, replace(exact, error=1e-3))
    assert wrong.served is None and "off by 0.001" in wrong.reason
    over = passes._judged(row, replace(exact, over_error=1e-3))
    assert over.served is None and "written over its operand, is off by 0.001" in over.reason
    gained = replace(exact, alone=(1e-5 + 1e-6 * LEAST_GAIN_US / 2,))
    slow = passes._judged(row, gained)
    assert slow.served is None and "IREE alone is as fast" in slow.reason
    failed = passes._judged(row, replace(exact, failure="its results are no numbers"))
    assert failed == PassRow(chain, failure="its results are no numbers")
