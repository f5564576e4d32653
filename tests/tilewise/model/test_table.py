from dataclasses import replace

from tilewise.kernels.mlir.frontend.graph import Skipped
from tilewise.model.measuring import FormRuns, ModelTimes
from tilewise.model.report import (
    DATA_TILING,
    DEFAULT,
    WITH,
    ModelReport,
    ProblemReport,
    report_text,
)

SLOW, FAST = "matmul:m=16,n=32,k=64,dtype=f32", "matmul:m=64,n=64,k=64,dtype=f32"


def a_report(deviation: float) -> ModelReport:
    forms = {
        DEFAULT: FormRuns((0.004, 0.003, 0.005), 0.0),
        DATA_TILING: FormRuns((0.003,), 0.0),
        WITH[0]: FormRuns((0.002,), deviation),
        WITH[1]: FormRuns((0.0025,), deviation),
    }
    alone = {DEFAULT: 30.0, DATA_TILING: 20.0}
    ops = (
        ProblemReport(FAST, 3, ("@main 1:1",) * 3, "a" * 16, alone, 10.0, replaced=3),
        ProblemReport(
            SLOW, 1, ("@main 2:1",), "b" * 16, alone, 25.0, reason="IREE alone is faster"
        ),
    )
    skipped = (Skipped("linalg.pooling_nhwc_max", "is a pooling", "@main 3:1"),)
    measured = ModelTimes("main", ("tensor<4xf32>",), ("tensor<4xf32>",), forms)
    return ModelReport(
        "m.mlir", "cpu:znver5,threads=1", {"IREE": "3"}, ops, skipped, measured, 1e-5
    )


def test_times_are_compared_with_the_faster_form_of_ours() -> None:
    report = a_report(1e-6)
    assert report.best == WITH[0] and report.is_right
    assert report.speedup(DEFAULT) == 2.0 and report.speedup(DATA_TILING) == 1.5
    text = report_text(report)
    assert "2.00x default, 1.50x data tiling; within the tolerance of 1e-05" in text
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert rows[FAST][-1] == "2.00" and rows[SLOW][-1] == "0.80"
    assert f"1 of 1 left to IREE: {SLOW}: IREE alone is faster" in text
    assert "no problem: linalg.pooling_nhwc_max at @main 3:1: is a pooling" in text


def test_a_deviation_beyond_the_tolerance_is_not_right() -> None:
    report = a_report(1e-3)
    assert not report.is_right and not report.to_json()["right"]
    named = ", ".join(report.wrong)
    assert named and f"BEYOND the tolerance of 1e-05: {named}\n" in report_text(report)
    assert a_report(1e-6).disagreement == ""
    assert "library by 0.001" in report.disagreement
    assert report.disagreement.endswith("do not use the library")


def test_data_tiling_that_is_wrong_by_itself_is_not_the_librarys_fault() -> None:
    whole = a_report(1e-6)
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
    report = replace(
        whole, measured=replace(whole.measured, forms=forms), refused={DATA_TILING: "no stack left"}
    )
    assert report.speedup(DATA_TILING) is None
    assert report.to_json()["speedup"] == {DEFAULT: 2.0, DATA_TILING: None}
    text = report_text(report)
    assert f"  {DATA_TILING:<21} no stack left\n" in text
    assert "with tuned kernels: 2.00x default; within" in text


def test_a_model_without_a_kernel_has_no_gain() -> None:
    report = a_report(1e-6)
    report = replace(report, ops=tuple(replace(op, replaced=0) for op in report.ops))
    text = report_text(report)
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
