"""Which kind of micro-kernel a schedule gets, and what each kind provides."""

from dataclasses import replace

import pytest
from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.jit.loading import emit_all
from tilewise.kernels.native.microkernels import kinds
from tilewise.kernels.native.microkernels.abi import FUNCTIONS
from tilewise.kernels.native.microkernels.depthwise import Depthwise
from tilewise.kernels.native.microkernels.inner_product import InnerProduct
from tilewise.kernels.native.microkernels.kinds import KINDS, kind_of
from tilewise.kernels.native.microkernels.outer_product import OuterProduct
from tilewise.kernels.native.microkernels.skinny_gemm import SkinnyGemm
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Split, Stream, Sweep, loop_nest
from tilewise.kernels.target import Target

PROBLEM = parse_problem("matmul:m=32,n=48,k=64,dtype=f32")


def schedules(host: Target) -> dict[type, Schedule]:
    lanes = host.lanes("f32")
    return {
        InnerProduct: Schedule((Pack("B"), Register(4, 2), Split("k", lanes))),
        OuterProduct: Schedule((Pack("B"), Register(4, lanes))),
        SkinnyGemm: Schedule((Stream("k", 8), Register(32, lanes), Sweep("n"))),
    }


def test_every_kind_serves_its_schedules_and_no_other(host: Target) -> None:
    for kind, schedule in schedules(host).items():
        assert kind_of(loop_nest(PROBLEM, schedule)) is kind
        assert [other for other in KINDS if other.serves(loop_nest(PROBLEM, schedule))] == [kind]


def test_groups_of_few_channels_have_a_kind_of_their_own(host: Target) -> None:
    depthwise = parse_problem("conv2d:n=1,h=9,w=9,ci=8,co=8,kh=3,kw=3,groups=8,dtype=f32")
    schedule = Schedule((Register(4, host.lanes("f32")),))
    assert kind_of(loop_nest(depthwise, schedule)) is Depthwise
    plain = parse_problem(str(depthwise).replace(",groups=8", ""))
    assert kind_of(loop_nest(plain, schedule)) is OuterProduct


def test_a_schedule_that_no_kind_serves_is_refused(
    host: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = schedules(host)
    monkeypatch.setattr(kinds, "KINDS", (InnerProduct,))
    assert kind_of(loop_nest(PROBLEM, found[InnerProduct])) is InnerProduct
    with pytest.raises(LoweringError, match="no micro-kernel serves"):
        kind_of(loop_nest(PROBLEM, found[OuterProduct]))


def test_pieces_are_what_a_driver_may_call_and_are_equal_where_their_code_is(
    host: Target,
) -> None:
    for schedule in schedules(host).values():
        kernel = plan(PROBLEM, schedule, host).kernel
        made = kernel.pieces()
        assert set(made) <= set(FUNCTIONS)
        assert made == kernel.pieces() and hash(kernel) == hash(replace(kernel))
        assert len({repr(piece) for piece in made.values()}) == len(made)
        emitted = emit_all(ir.Module("all"), kernel)
        assert len(emitted) == len(made)


def test_a_pack_of_columns_serves_every_register_tile(host: Target) -> None:
    lanes = host.lanes("f32")
    packs = {
        plan(PROBLEM, Schedule((Pack("B"), Register(rows, cols), Split("k", lanes))), host)
        .kernel.pieces()["pack_b_panel"]
        for rows, cols in ((4, 2), (8, 1), (2, 3))
    }  # fmt: skip
    assert len(packs) == 1
