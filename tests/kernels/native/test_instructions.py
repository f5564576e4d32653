"""A kernel multiplies by the instruction that its schedule names, whatever else the target has."""

from dataclasses import replace

import pytest

from tests.cases import some
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import WITH_CHOICE, Form, instructions, usable
from tilewise.kernels.native.assembly import inner_loop
from tilewise.kernels.native.microbench import measure_rates, peak_gflops
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import (
    InstructionChoice,
    Pack,
    Register,
    Schedule,
    Split,
    Step,
    Stream,
    Sweep,
    instruction_of,
    loop_nest,
    with_instruction,
)
from tilewise.kernels.target import Target

FMA, VDPBF16PS = "x86.avx512.fma.f32", "x86.avx512.vdpbf16ps"
SQUARE = "matmul:m=33,n=64,k=66,dtype={}"
FORMS: dict[str, tuple[tuple[Step, ...], tuple[Step, ...]]] = {
    "outer": ((Stream("k", 32), Pack("B"), Pack("A")), (Register(4, 32),)),
    "split": ((), (Register(2, 2), Split("k", 16))),
    "sweep": ((Stream("k", 8),), (Register(3, 32, "rows"), Sweep("n"))),
}


KINDS = {"outer": Form.OUTER_PRODUCT, "split": Form.SPLIT, "sweep": Form.SKINNY}


def text_of(factors: str, form: str) -> str:
    """A problem whose factors are multiplied as such."""
    keys = "i8,zero=ab" if factors == "i16" else factors.replace("*", ",b=")
    return SQUARE.format(keys) + (",transpose_b" if form == "split" else "")


def schedule(form: str, op: str | None) -> Schedule:
    before, behind = FORMS[form]
    return Schedule((*before, *([InstructionChoice(op)] if op else []), *behind))


def test_the_code_is_that_of_the_named_instruction(host: Target) -> None:
    if VDPBF16PS not in usable("bf16", host):
        pytest.skip(f"{host.cpu} has one way to multiply bf16")
    problem = parse_problem(SQUARE.format("bf16"))
    for rates in ((), ((FMA, 1.0), (VDPBF16PS, 2.0)), ((FMA, 2.0), (VDPBF16PS, 1.0))):
        measured = replace(host, rates=rates)
        dots = {
            op: "vdpbf16ps" in inner_loop(problem, schedule("outer", op), measured).text
            for op in (VDPBF16PS, FMA, None)
        }
        assert dots == {VDPBF16PS: True, FMA: False, None: True}, "None is of an older version"


def test_an_instruction_that_the_target_lacks_is_refused_by_name(host: Target) -> None:
    without = replace(host, vector_bytes=64, features=host.features - {"avx512bf16"})
    with pytest.raises(LoweringError, match=r"'instruction op=x86\.avx512\.vdpbf16ps'.*tune again"):
        plan(parse_problem(SQUARE.format("bf16")), schedule("outer", VDPBF16PS), without)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [*sorted(WITH_CHOICE), "f32"])
def test_a_schedule_that_names_none_means_what_it_meant(
    dtype: str, form: str, host: Target
) -> None:
    if not instructions(dtype, host, KINDS[form]):
        pytest.skip(f"no {form} kernel of {dtype}")
    problem = parse_problem(text_of(dtype, form))
    old = schedule(form, None)
    named = with_instruction(problem, old, host)
    here, before = (plan(problem, one, host) for one in (named, old))
    assert replace(here, nest=before.nest) == before, "only the nest has the name"
    assert len({instruction_of(loop_nest(problem, one), host) for one in (named, old)}) == 1
    assert (named == old) == (dtype not in WITH_CHOICE)


@pytest.mark.parametrize("dtype", some(sorted(WITH_CHOICE), of=3))
def test_the_peak_of_a_type_is_that_of_its_fastest_instruction(dtype: str, host: Target) -> None:
    rates = measure_rates(host)
    names = {*usable(dtype, host), *usable(dtype, host, split=True)}
    assert names <= rates.keys()
    assert peak_gflops(host, dtype) > 0.5 * max(rates[name] for name in names)
