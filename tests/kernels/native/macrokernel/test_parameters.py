"""What drivers take: every parameter has a value, and those who call agree with what is called."""

import ast
import symtable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kernels.strategies import problems, schedules
from tilewise.kernels.native.language.compiler import language
from tilewise.kernels.native.macrokernel.parameters import (
    BARRIER,
    COUNT,
    COUNT_AT,
    PARTS,
    REPEAT,
    TRANSFORMED,
    TRANSFORMED_AT,
    Addresses,
    bounds,
    names_of,
)
from tilewise.kernels.native.microkernels.abi import (
    CONFIGURE,
    FINISH_ROWS,
    FUNCTIONS,
    RELEASE,
    WIDEN,
    Arguments,
    DepthwiseArguments,
    SkinnyGemmArguments,
)
from tilewise.kernels.native.packing.finish import FINISH_ARGUMENTS
from tilewise.kernels.native.packing.panels import (
    PANEL_ARGUMENTS,
    PATCHES_ARGUMENTS,
    ROWS_ARGUMENTS,
)
from tilewise.kernels.native.packing.transforms import (
    FILTER_ARGUMENTS,
    IMAGE_ARGUMENTS,
    RESULT_ARGUMENTS,
)
from tilewise.kernels.native.packing.widening import WIDEN_ARGUMENTS
from tilewise.kernels.native.plan import KernelPlan, plan
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Parallel, Register, Schedule, Winograd
from tilewise.kernels.target import Target

GIVEN = {
    CONFIGURE: (),
    RELEASE: (),
    "full": names_of(Arguments),
    "edge": names_of(Arguments),
    "filling": names_of(Arguments),
    "pack_a_panel": PANEL_ARGUMENTS,
    "pack_b_panel": PANEL_ARGUMENTS,
    "copy_rows": ROWS_ARGUMENTS,
    FINISH_ROWS: FINISH_ARGUMENTS,
    WIDEN: WIDEN_ARGUMENTS,
    "copy_patches": PATCHES_ARGUMENTS,
    "transform_image": IMAGE_ARGUMENTS,
    "transform_filter": FILTER_ARGUMENTS,
    "transform_result": RESULT_ARGUMENTS,
}
"""What each function that a driver calls is given."""


def without_a_value(planned: KernelPlan) -> set[str]:
    """Names that nothing gives a value: neither the text, its parameters, nor the language."""
    module = symtable.symtable(planned.source.text, "driver", "exec")
    read = {name for function in module.get_children() for name in function.get_globals()}
    assert len(set(planned.source.parameters)) == len(planned.source.parameters)
    threads = {BARRIER, PARTS, *(edge for dim in planned.nest.parts[0] for edge in bounds(dim))}
    known = {*names_of(Addresses), *FUNCTIONS, *planned.sizes, *threads}
    return (read - set(module.get_identifiers()) - {"min", "max", "range"}) | (
        set(planned.source.parameters) - known
    )


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_parameter_has_a_value(data: st.DataObject, host: Target) -> None:
    problem = data.draw(problems)
    planned = plan(problem, data.draw(schedules(problem, host)), host)
    assert not without_a_value(planned)


def test_threads_have_parameters_of_their_own(host: Target) -> None:
    problem = parse_problem("matmul:m=64,n=64,k=8,dtype=f32")
    planned = plan(problem, Schedule((Parallel("m", 2), Pack("B"), Register(4, 16))), host)
    assert {BARRIER, PARTS, "m_first", "m_end"} <= set(planned.source.parameters)
    assert not without_a_value(planned)


@pytest.mark.parametrize("weights", ["variable", "constant"])
@pytest.mark.parametrize("layout", ["nhwc_hwcf", "nchw_fchw"])
def test_every_parameter_of_transforms_has_a_value(weights: str, layout: str, host: Target) -> None:
    keys = f"layout={layout},weights={weights}"
    text = f"conv2d:n=1,h=9,w=9,ci=8,co=40,kh=3,kw=3,dtype=f32,{keys}"
    steps = (Winograd(4), Parallel("t", 2), Pack("B"), Pack("A"), Register(2, 32))
    planned = plan(parse_problem(text), Schedule(steps), host)
    assert not without_a_value(planned)


def test_counters_come_first_and_whatever_else_is_read_follows(host: Target) -> None:
    problem = parse_problem("matmul:m=64,n=64,k=8,dtype=f32")
    source = plan(problem, Schedule((Pack("B"), Register(4, 16))), host).source
    assert source.parameters[COUNT_AT] == COUNT and source.parameters[TRANSFORMED_AT] == TRANSFORMED
    assert {REPEAT, "a", "b", "c", "full", "m_extent", "b_n"} <= set(source.parameters)
    assert not {"bias_m", "height", "raw_at"} & set(source.parameters)


def calls(tree: ast.AST) -> list[ast.Call]:
    """The calls through an address."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [c for c in found if isinstance(c.func, ast.Name) and c.func.id == "call_address"]


def test_the_language_gives_packs_as_many_arguments_as_they_take() -> None:
    taken = {"pack_panel": PANEL_ARGUMENTS, **GIVEN}
    for function in language().values():
        for call in calls(function):
            if isinstance(call.args[0], ast.Name):  # helpers of compiled networks call words
                assert len(call.args) - 1 == len(taken[call.args[0].id])


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_drivers_give_functions_as_many_arguments_as_they_take(
    data: st.DataObject, host: Target
) -> None:
    problem = data.draw(problems)
    planned = plan(problem, data.draw(schedules(problem, host)), host)
    for call in calls(ast.parse(planned.source.text)):
        name = ast.unparse(call.args[0])
        taken = GIVEN["full" if name == "kernel" else name]
        if planned.nest.is_macro and name != FINISH_ROWS:
            is_window = planned.nest.group > 0
            taken = names_of(DepthwiseArguments if is_window else SkinnyGemmArguments)
        assert len(call.args) - 1 == len(taken)
