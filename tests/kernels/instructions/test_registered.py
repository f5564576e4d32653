"""An instruction that this file declares is compiled, recorded and chosen as any other."""

from dataclasses import replace
from itertools import product

import pytest

from tests.cases import some
from tests.kernels.native.test_instructions import FORMS, SQUARE, schedule
from tests.kernels.native_case import check
from tilewise.kernels.errors import ScheduleError
from tilewise.kernels.instructions import (
    WITH_CHOICE,
    Form,
    Instruction,
    chosen,
    instructions,
    register,
    registered,
    usable,
)
from tilewise.kernels.native.assembly import inner_loop
from tilewise.kernels.native.jit.ir_text import kernel_text
from tilewise.kernels.native.microbench import multiplier
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Schedule, check_legal, loop_nest
from tilewise.kernels.target import Target
from tilewise.search.space.space import Space


def another(dtype: str, form: Form, host: Target) -> Instruction:
    """What the host has with the most products, by another name; floats by another intrinsic."""
    best = instructions(dtype, host, form)[0]
    mine = replace(best, name=f"{best.unit}.mine", assembly=best.assembly or best.mnemonic)
    return replace(mine, intrinsic="llvm.fmuladd.{}") if best.intrinsic == "llvm.fma.{}" else mine


@pytest.mark.parametrize(("form", "dtype"), some(product(FORMS, ["f32", "bf16", "i8"]), of=4))
def test_a_kernel_is_compiled_with_it(dtype: str, form: str, host: Target) -> None:
    problem = parse_problem(SQUARE.format(dtype) + (",transpose_b" if form == "split" else ""))
    kind = {"outer": Form.OUTER_PRODUCT, "split": Form.SPLIT, "sweep": Form.SKINNY}[form]
    mine = another(dtype, kind, host)
    named = schedule(form, mine.name)
    with pytest.raises(ScheduleError, match=" has " if dtype != "f32" else "one way to multiply"):
        check_legal(problem, named)
    with registered(mine):
        check_legal(problem, named)
        assert Schedule.from_json(named.to_json()) == named
        assert plan(problem, named, host).spec.how.instruction == mine
        text = kernel_text(plan(problem, named, host).kernel).text
        assert mine.intrinsic.split("{")[0] in text
        assert inner_loop(problem, named, host).counts.multiply_adds
        check(problem, named, host, 2)


def test_searches_take_it_where_it_is_the_fastest(host: Target) -> None:
    mine = another("f32", Form.OUTER_PRODUCT, host)
    assert "f32" not in WITH_CHOICE
    with registered(mine):
        names = usable("f32", host)
        assert mine.name in names and "f32" in WITH_CHOICE
        for fastest in names:
            rates = tuple((name, 1.0 + (name == fastest)) for name in names)
            space = Space(parse_problem(SQUARE.format("f32")), replace(host, rates=rates))
            assert space.workload.arithmetic.instruction.name == fastest
            schedule = space.schedule({p.name: p.values[0] for p in space.parameters})
            assert loop_nest(space.problem, schedule).compute.instruction == fastest
        assert chosen("f32", replace(host, rates=())) == names[0], "of equal slots the first one"
        multiplier(host, "f32", mine.name)
    assert "f32" not in WITH_CHOICE and usable("f32", host) == names[:1]


def test_a_shape_of_several_rows_can_be_declared(host: Target) -> None:
    best = instructions("bf16", host, Form.OUTER_PRODUCT)[0]
    tiles = replace(best, name=f"{best.unit}.tiles", rows=16, k=32, slots=16)
    with registered(tiles):
        assert instructions("bf16", host, Form.OUTER_PRODUCT)[0] == tiles
        assert chosen("bf16", replace(host, rates=())) == tiles.name


@pytest.mark.parametrize("name", ["x86.avx512.vdpbf16ps", "vdpbf16ps", "riscv.rvv.fma.f32"])
def test_a_name_that_is_taken_or_of_no_unit_is_refused(name: str, host: Target) -> None:
    one = another("f32", Form.OUTER_PRODUCT, host)
    with pytest.raises(ValueError, match=f"instruction '{name}'.*x86.avx512, "):
        register(replace(one, name=name))
