"""Scripts of ranges: applied once, and right at each size, whatever variants serve it."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import cases, some
from tests.kernels.mlir.build import IN_PLACE, PACKED, schedule
from tests.kernels.strategies import convolutions, matmuls, schedules, with_results
from tilewise.kernels.errors import LoweringError, ProblemError, UnsupportedError
from tilewise.kernels.mlir.cpu.range_script import emit_range_script, proof_sizes, range_payload
from tilewise.kernels.mlir.proof.prove import prove_range
from tilewise.kernels.problem import parse_range, sizes_text
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.target import detect

FEW = ("stream dim=k depth=16", "register rows=1 cols=32 outer=cols", "skinny dim=n")
STRASSEN = (
    "strassen levels=1", "pack operand=B", "tile dim=t size=8", "pack operand=A",
    "register rows=4 cols=16 outer=cols",
)  # fmt: skip
DYNAMIC = "a buffer of dynamic size is left"


def ranges(*variants: tuple[str, ...], ends: tuple[int, ...], text: str) -> RangeSchedule:
    """A range whose variants serve the sizes up to their ends."""
    problems = parse_range(text)
    choice = tuple(next(at for at, end in enumerate(ends) if s[-1] <= end) for s in problems.sizes)
    return RangeSchedule(problems, tuple(schedule(*steps) for steps in variants), choice)


@pytest.mark.full
@pytest.mark.timeout(1800)
@cases(9)
@given(st.data())
def test_random_ranges_prove(data: st.DataObject) -> None:
    problem = data.draw(matmuls | convolutions().flatmap(with_results))
    some = [["m"], ["m"], ["batch"], ["batch", "m"]] if problem.op == "matmul" else [["n"]]
    ranges = {}
    for dim in data.draw(st.sampled_from(some)):
        first, step = data.draw(st.sampled_from([1, 1, 2, 9])), data.draw(st.integers(1, 3))
        ranges[dim] = f"{first}..{first + 9 * step}:{step}"
    try:
        problems = parse_range({**problem.to_json(), **ranges})
    except ProblemError:
        assume(False)
    ends = problems.sizes[0], problems.sizes[-1]
    drawn = [data.draw(schedules(problems.at(end), detect())) for end in ends]
    variants = tuple(dict.fromkeys(drawn))
    few = data.draw(st.integers(1, len(problems.sizes) - 1))
    choice = tuple(int(at >= few) % len(variants) for at in range(len(problems.sizes)))
    whole = RangeSchedule(problems, variants, choice)
    try:
        proof = prove_range(whole)
    except (LoweringError, UnsupportedError):
        assume(False)
    assume(DYNAMIC not in proof.message)
    assert proof.ok, proof.message
    sizes = (sizes_text(problems.dims, size, size) for size in proof_sizes(whole))
    assert all(f"{size}: " in proof.script for size in sizes)


def test_each_size_runs_its_variant() -> None:
    whole = ranges(FEW, PACKED, ends=(1, 40), text="matmul:m=1..40,n=48,k=32,dtype=f32,bias")
    assert proof_sizes(whole) == ((1,), (2,), (20,), (21,), (23,), (40,))
    text = range_payload(whole)
    assert "%A: tensor<?x32xf32>" in text and text.count("func.func private @variant_") == 2
    assert "%end_ule_m_0 = arith.constant 1 : index" in text
    proof = prove_range(whole)
    assert proof.ok and proof.vectorised, proof.message
    assert "// pack A to rows: read in place, since m is not known" in proof.script


@pytest.mark.parametrize("text", some([
    "matmul:m=3..12,n=40,k=32,dtype=u8,b=i8,zero=ab",
    "matmul:m=3..12,n=40,k=32,dtype=bf16,out=bf16,bias,add,epilogue=relu",
    "matmul:m=3..12,n=40,k=32,dtype=i8,out=i8,requant=channel",
    "matmul:batch=2..4,m=3..12,n=40,k=32,dtype=bf16,out=bf16",
    "matmul:batch=1..4,m=1..12,n=48,k=32,dtype=f32,bias",
], of=5))  # fmt: skip
def test_results_of_other_types_and_two_dims_prove(text: str) -> None:
    problems = parse_range(text)
    lead = ("tile dim=batch size=1",) if "batch" in problems.dims else ()
    packed, few = (schedule(*lead, *steps) for steps in (PACKED, IN_PLACE))
    choice = tuple(int(size[-1] > 5 and size[0] > 2) for size in problems.sizes)
    proof = prove_range(RangeSchedule(problems, (packed, few), choice))
    assert proof.ok and proof.vectorised, proof.message


def test_a_variant_may_serve_a_single_size_of_two_dims() -> None:
    problems = parse_range("matmul:batch=1..3,m=1..4,n=32,k=32,dtype=f32")
    choice = tuple(int(size != (1, 1)) for size in problems.sizes)
    packed = schedule("tile dim=batch size=1", *PACKED)
    proof = prove_range(RangeSchedule(problems, (schedule(*FEW), packed), choice))
    assert proof.ok, proof.message


@pytest.mark.parametrize(("text", "steps", "why"), [
    ("matmul:m=8,n=16..64,k=32,dtype=f32", PACKED, "cover batch and m of a matmul"),
    ("matmul:m=8..64,n=32,k=32,dtype=f32", STRASSEN, "the step strassen has no script"),
])  # fmt: skip
def test_what_no_script_covers_is_refused(text: str, steps: tuple[str, ...], why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        emit_range_script(ranges(steps, ends=(64,), text=text))


def test_a_wrong_variant_does_not_prove(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ranges(PACKED, ends=(40,), text="matmul:m=9..40,n=48,k=32,dtype=f32")
    wrong = range_payload(whole).replace("constant 0.0", "constant 1.0")
    monkeypatch.setattr("tilewise.kernels.mlir.proof.prove.range_payload", lambda _: wrong)
    proof = prove_range(whole)
    assert proof.failure == "wrong" and proof.message.startswith("m=9: the result is off by")
