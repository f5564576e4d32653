"""Reports of models: times, tolerances, comparison of results, and forms that compile."""

import math
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tilewise.cli.files import json_text
from tilewise.errors import TilewiseError
from tilewise.kernels.errors import CompilerError
from tilewise.kernels.mlir.frontend.graph import Skipped
from tilewise.kernels.problem import parse_problem
from tilewise.model import examine
from tilewise.model import report as reports
from tilewise.model.child import deviation, deviation_of, has_numbers
from tilewise.model.examine import FILES, LIBRARY, compile_forms
from tilewise.model.measuring import FormRuns, ModelTimes
from tilewise.model.report import DATA_TILING, DEFAULT, WITH, ProblemReport, report_text, tolerance
from tilewise.model.signature import TensorType

SLOW, FAST = "matmul:m=16,n=32,k=64,dtype=f32", "matmul:m=64,n=64,k=64,dtype=f32"


def a_report(deviation: float) -> reports.ModelReport:
    forms = {
        DEFAULT: FormRuns((0.004, 0.003, 0.005), 0.0), DATA_TILING: FormRuns((0.003,), 0.0),
        WITH[0]: FormRuns((0.002,), deviation), WITH[1]: FormRuns((0.0025,), deviation),
    }  # fmt: skip
    alone, left = {DEFAULT: 30.0, DATA_TILING: 20.0}, "IREE alone is faster"
    ops = (
        ProblemReport(FAST, 3, ("@main 1:1",) * 3, "a" * 16, alone, 10.0, replaced=3),
        ProblemReport(SLOW, 1, ("@main 2:1",), "b" * 16, alone, 25.0, reason=left),
    )
    skipped = (Skipped("linalg.pooling_nhwc_max", "is a pooling", "@main 3:1"),)
    measured = ModelTimes("main", ("tensor<4xf32>",), ("tensor<4xf32>",), forms)
    given = ("m.mlir", "cpu:znver5,threads=1", {"IREE": "3"})
    return reports.ModelReport(*given, ops, skipped, measured, 1e-5)


def test_times_are_compared_with_the_faster_form_of_ours() -> None:
    report = a_report(1e-6)
    assert report.best == WITH[0] and not report.wrong
    assert report.speedup(DEFAULT) == 2.0 and report.speedup(DATA_TILING) == 1.5
    text = report_text(report)
    assert "2.00x default, 1.50x data tiling; within the tolerance of 1e-05" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows[FAST][-1] == "2.00" and rows[SLOW][-1] == "0.80"
    assert f"1 of 1 left to IREE: {SLOW}: IREE alone is faster" in text
    assert "no problem: linalg.pooling_nhwc_max at @main 3:1: is a pooling" in text


def test_a_deviation_beyond_the_tolerance_is_not_right() -> None:
    report, whole = a_report(1e-3), a_report(1e-6)
    assert not report.to_json()["right"]
    named = ", ".join(report.wrong)
    assert named and f"BEYOND the tolerance of 1e-05: {named}\n" in report_text(report)
    assert "library by 0.001" in report.disagreement and whole.disagreement == ""
    assert report.disagreement.endswith("do not use the library")
    # Data tiling that is wrong by itself is not the library's fault.
    forms = {
        name: replace(form, deviation=0.9) if DATA_TILING in name else form
        for name, form in whole.measured.forms.items()
    }
    told = replace(whole, measured=replace(whole.measured, forms=forms)).disagreement
    assert "data tiling by 0.9; library, data tiling by 0.9" in told
    assert told.endswith("use the library without it")


def test_a_form_that_does_not_compile_is_told_and_left_out() -> None:
    whole = a_report(1e-6)
    forms = {name: form for name, form in whole.measured.forms.items() if name != DATA_TILING}
    measured = replace(whole.measured, forms=forms)
    report = replace(whole, measured=measured, refused={DATA_TILING: "no stack left"})
    assert report.speedup(DATA_TILING) is None
    assert report.to_json()["speedup"] == {DEFAULT: 2.0, DATA_TILING: None}
    text = report_text(report)
    assert f"  {DATA_TILING:<21} no stack left\n" in text
    assert "with tuned kernels: 2.00x default; within" in text
    unused = replace(whole, ops=tuple(replace(op, replaced=0) for op in whole.ops))
    text = report_text(unused)
    assert "with tuned kernels: none is in use" in text and "2.00x default" not in text


def test_all_sums_are_over_the_rows_that_were_measured() -> None:
    """A form that lacks on one of them has no sum."""
    both = {DEFAULT: 30.0, DATA_TILING: 20.0}
    row = ProblemReport(FAST, 2, ("@main 1:1",) * 2, "a" * 16, both, 10.0, replaced=2)
    plain = ProblemReport(SLOW, 1, ("@main 2:1",), "b" * 16, {DEFAULT: 15.0}, 5.0, replaced=1)
    left = ProblemReport(SLOW, 3, ("@main 3:1",) * 3, reason="no schedule is stored")

    def sums(*ops: ProblemReport) -> str:
        text = report_text(replace(a_report(1e-6), ops=ops))
        (line,) = (line for line in text.splitlines() if ", by count" in line)
        return " ".join(line.split())

    assert sums(row, plain) == "all of them, by count 3 3 75.0 us - 25.0 us 3.00"
    assert sums(row) == "all of them, by count 2 2 60.0 us 40.0 us 20.0 us 2.00"
    assert sums(row, left).startswith("measured ones, by count 2 2 ")


def test_it_covers_two_orders_of_every_sum_and_nothing_like_a_lost_column() -> None:
    random = np.random.default_rng(3)
    layers, size = 6, 192
    weights = [random.standard_normal((size, size)) / size**0.5 for _ in range(layers)]
    x = random.standard_normal((16, size))
    one = other = x.astype(np.float32)
    for weight in weights:
        narrow = weight.astype(np.float32)
        order = random.permutation(size)
        one = one @ narrow
        other = sum((other[:, [i]] * narrow[[i]] for i in order), np.zeros_like(other))
    apart = np.sqrt(np.mean((one - other) ** 2) / np.mean(one**2))
    problem = parse_problem(f"matmul:m=16,n={size},k={size},dtype=f32")
    allowed = tolerance([(problem, layers)])
    assert 0 < apart < allowed
    lost = one.copy()
    lost[:, 7] = 0
    assert np.sqrt(np.mean((lost - one) ** 2) / np.mean(one**2)) > 100 * allowed


def test_narrow_operands_and_longer_sums_are_allowed_more() -> None:
    def of(given: str, layers: int, *stored: str) -> float:
        return tolerance([(parse_problem(f"matmul:m=16,n=64,{given}"), layers)], stored)

    assert of("k=512,dtype=f32", 1, "f32") < 1e-5 < 6.6e-5 < of("k=512,dtype=f32", 1, "bf16")
    kinds = ("i8", "f32", "f32,epilogue=gelu_tanh", "bf16")
    whole, wide, gelu, narrow = (of(f"k=64,dtype={kind}", 4) for kind in kinds)
    assert whole < wide < 6e-5 < gelu < narrow < 0.02
    assert of(f"k={2**20},dtype=f32", 1) > 100 * of("k=1,dtype=f32", 1)


FLOATS, CODES = TensorType((3,), "f32"), np.int8([127, 8, 0])
NOT_FINITE = np.float32([1, np.inf, np.nan])


@pytest.mark.parametrize(("expected", "found", "apart"), [
    (NOT_FINITE, (1, np.inf, np.nan), 0), (NOT_FINITE, (1, -np.inf, np.nan), np.inf),
    (NOT_FINITE, (1, np.nan, np.nan), np.inf), (NOT_FINITE, (1, 2, np.nan), np.inf),
    (CODES, (127, 9, 0), 0), (CODES, (125, 8, 0), np.inf),
    (CODES, (-128, 9, 0), (127**2 + 8**2) ** -0.5),  # the first is 128 without a sign
    (CODES, (-128, 8, -1), np.inf), (np.int16([1, 2, 3]), (1, 2, 4), np.inf),
])  # fmt: skip
def test_results_are_compared_by_their_type(expected, found, apart) -> None:
    """Rounded bytes may be either neighbour, and what is not finite has to be the same."""
    kind = TensorType((3,), f"{expected.dtype.kind}{8 * expected.itemsize}")
    assert deviation([np.array(found, expected.dtype)], [expected], [kind]) == pytest.approx(apart)


def test_a_network_that_is_wrong_in_its_second_run_deviates(monkeypatch) -> None:
    monkeypatch.setattr("tilewise.model.child.poison_activations", Mock())
    ones, network = np.ones(3, np.float32), Mock()
    network.run.side_effect = [[ones], [2 * ones]]
    assert deviation_of(network, [([(ones, "f32")], [ones])] * 2, [FLOATS]) == 1.0


def test_results_without_a_number_prove_nothing() -> None:
    nothing, number = np.float32([np.nan, np.inf]), np.float32([np.nan, 1])
    assert not has_numbers([nothing], [FLOATS]) and has_numbers([], [])
    assert has_numbers([nothing, number], [FLOATS, FLOATS])
    assert has_numbers([np.array([1, 2, 3])], [TensorType((3,), "i64")])


@pytest.mark.parametrize(("broken", "message"), [
    ({DATA_TILING, WITH[1]}, None), ({WITH[0]}, None),
    ({DEFAULT}, "m.mlir, default: no stack left"), (set(WITH), "m.mlir, library: no stack left"),
])  # fmt: skip
def test_what_compiles_is_used(tmp_path, monkeypatch, broken, message) -> None:
    def compile_file(_source: Path, code: Path, _flags: tuple[str, ...], _limit: float) -> None:
        name = next(name for name, file in FILES.items() if file == code.name)
        if name in broken:
            raise CompilerError("no stack left")
        code.write_bytes(b"code")

    monkeypatch.setattr(examine, "compile_file", compile_file)
    monkeypatch.setattr(examine, "preprocessed", lambda *_: "")
    source = tmp_path / "m.mlir"
    source.write_text("")
    (tmp_path / LIBRARY).write_text("")
    for file in FILES.values():  # of an earlier run
        (tmp_path / file).write_bytes(b"old")
    if message is not None:
        with pytest.raises(TilewiseError, match=message):
            compile_forms(source, tmp_path)
        return
    found = compile_forms(source, tmp_path)
    assert found.codes.keys() == FILES.keys() - broken
    assert dict(found.refused) == dict.fromkeys(broken, "no stack left")
    assert {file for file in FILES.values() if (tmp_path / file).exists()} == {
        path.name for path in found.codes.values()
    }


def test_json_has_no_numbers_that_json_does_not_know() -> None:
    assert json_text([math.inf, -math.inf, math.nan, 1.5]) == json_text([None, None, None, 1.5])
