"""Instructions: their meanings, which is chosen, and kernels that multiply by the one named."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cases import some
from tests.kernels.emulated_tiles import ALDER_LAKE, emulated_for
from tests.kernels.native_case import TARGETS, check
from tilewise.kernels import steps
from tilewise.kernels.errors import LoweringError, ScheduleError
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
from tilewise.kernels.instructions.declaration import DECLARED
from tilewise.kernels.native import lower
from tilewise.kernels.native.assembly import inner_loop
from tilewise.kernels.native.jit.ir_text import kernel_text
from tilewise.kernels.native.measured_rates import lacks_rates, with_rates
from tilewise.kernels.native.microbench import measure_rates, multiplier, peak_gflops
from tilewise.kernels.native.plan import plan
from tilewise.kernels.oracle.operands import NUMPY_TYPES, make_operands
from tilewise.kernels.problem import DTYPES, parse_problem
from tilewise.kernels.schedule import (
    InstructionChoice,
    Pack,
    Register,
    Schedule,
    Skinny,
    Split,
    Step,
    Stream,
    check_legal,
    instruction_of,
    loop_nest,
    with_instruction,
)
from tilewise.kernels.target import Target, detect
from tilewise.kernels.target.machine import keep_rates, kept_rates
from tilewise.search.space.space import Space

Array = NDArray[Any]
SQUARE = "matmul:m=9,n=64,k=66,dtype={}"
IN_PARTS = "f32,accuracy=bf16x3"
MEANT: dict[Form, tuple[str, tuple[Step, ...], tuple[Step, ...]]] = {
    Form.OUTER_PRODUCT: (SQUARE, (Pack("B"), Pack("A")), (Register(4, 32),)),
    Form.SKINNY: (SQUARE, (Stream("k", 8),), (Register(3, 32, "rows"), Skinny("n"))),
    Form.SPLIT: (f"{SQUARE},transpose_b", (), (Register(2, 2), Split("k", 16))),
    Form.TILES: (SQUARE, (Pack("B"), Pack("A")), (Register(32, 32),)),
    Form.DEPTHWISE: (
        "conv2d:n=1,h=8,w=8,ci=32,co=32,kh=1,kw=1,groups=32,dtype={}", (), (Register(2, 32),),
    ),
}  # fmt: skip
BYTES = ("i8", "u8", "u8*i8", "i8*u8")
EXTREMES = np.array([-128, -127, -1, 0, 127], np.int8)


def meanings() -> dict[str, tuple[Target, str, Form, Instruction]]:
    """What this machine has, with all features and with fewer."""
    return {
        f"{one.name}-{dtype}-{form.value}": (target, dtype, form, one)
        for target in (ALDER_LAKE, *TARGETS)
        for dtype in (*dict.fromkeys((*DTYPES, *BYTES)), IN_PARTS)
        for form in Form
        for one in instructions(dtype.split(",")[0], target, form, dtype.partition("y=")[2])
        if dtype != IN_PARTS or one.accuracy
    }


MEANINGS = meanings()


@pytest.mark.parametrize("case", MEANINGS)
def test_a_kernel_computes_what_the_instruction_means(case: str) -> None:
    target, dtype, form, one = MEANINGS[case]
    text, before, behind = MEANT[form]
    dtype, _, accuracy = dtype.partition(",accuracy=")
    has_step = form is Form.TILES or len(instructions(dtype, target, form)) > 1
    text += f",accuracy={accuracy}" if accuracy else ""
    step = [steps.InstructionChoice(one.name)] if has_step else []
    problem = parse_problem(text.format(dtype.replace("*", ",b=")))
    schedule = Schedule((*before, *step, *behind))
    operands = make_operands(problem, seed=3)
    rng = np.random.default_rng(3)
    for array in (operands["A"], operands["B"]) if problem.element.bytes == 1 else ():
        array[...] = rng.choice(EXTREMES.view(array.dtype), array.shape)
        array.reshape(-1, array.shape[-1])[:4] = EXTREMES.view(array.dtype)[0]  # whole words
    with emulated_for(target):
        lower(problem, schedule, target).counted_run(operands)
    a, b, found = (exact(operands[name], problem.dtype) for name in ("A", "B", "C"))
    if form is Form.SPLIT:
        b = b.T
    if form is Form.DEPTHWISE:  # a product of matrices for each channel
        a, b, found = (x.reshape(-1, 32, 1).transpose(1, 0, 2) for x in (a, b, found))
    meant = by_meaning(one, a, b, problem.dtype)
    in_order = form is Form.OUTER_PRODUCT and one.k == 1 and one.c != "f64"
    if in_order or not problem.element.is_float:
        np.testing.assert_array_equal(found, meant)
    else:
        bound = a.shape[-1] * np.finfo(meant.dtype).eps * (np.abs(a) @ np.abs(b))
        assert (np.abs(found - meant) <= bound).all()


def exact(stored: Array, dtype: str) -> Array:
    """Elements of a type that NumPy may lack, in the one of their sums."""
    if stored.dtype == np.uint16:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(NUMPY_TYPES[DTYPES[dtype].accumulator])


def by_meaning(one: Instruction, a: Array, b: Array, dtype: str) -> Array:
    """The product of matrices, as many steps of the reduction at a time as the instruction has."""
    offset = a.dtype.type(one.offset(dtype))
    sums = np.zeros_like(a @ b) - offset * b.sum(axis=-2, keepdims=True, dtype=b.dtype)
    for start in range(0, a.shape[-1], one.k):
        step = slice(start, start + one.k)
        sums = one.meaning(sums, a[..., step] + offset, b[..., step, :])
    return sums


def test_every_dot_product_of_this_machine_is_one_of_the_cases() -> None:
    here = [one for one in DECLARED if one.k > 1 and one.features <= detect().features]
    dots = {one.name for one in here if not one.pairs}  # which quantised weights alone have
    assert dots <= {one.name for _, _, _, one in MEANINGS.values()}


FMA, PRODUCT = "x86.avx512.fma.f32", "x86.avx512.mul.i32"
VDPBF16PS, VPDPBUSD = "x86.avx512.vdpbf16ps", "x86.avx512.vpdpbusd"
VPMADDWD = "x86.avx512.vpmaddwd"
EVERYTHING = frozenset(("fma", "avx2", "avx512f", "avx512bw", "avx512vnni", "avx512bf16"))


def target(cpu: str, features: frozenset[str] = EVERYTHING, **rates: float) -> Target:
    measured = tuple(sorted((f"x86.avx512.{name}", rate) for name, rate in rates.items()))
    return Target(cpu, features=features, vector_bytes=64, vector_registers=32, rates=measured)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("form", [Form.OUTER_PRODUCT, Form.SKINNY, Form.SPLIT])
@pytest.mark.parametrize(("cpu", "name"), [
    *((cpu, FMA) for cpu in ("sapphirerapids", "emeraldrapids", "graniterapids")),
    *((cpu, VDPBF16PS) for cpu in ("znver4", "znver5", "a-later-one")),
])  # fmt: skip
def test_without_measurements_the_table_of_cores_chooses(cpu: str, name: str, form: Form) -> None:
    assert chosen("bf16", target(cpu), form) == name
    assert chosen("bf16", target(cpu, EVERYTHING - {"avx512bf16"}), form) == FMA


@pytest.mark.parametrize("cpu", ["emeraldrapids", "znver5", "skylake-avx512"])
def test_bytes_are_multiplied_by_dot_products_where_there_are_some(cpu: str) -> None:
    assert chosen("i8", target(cpu)) == VPDPBUSD
    assert chosen("i8", target(cpu), Form.SPLIT) == VPMADDWD
    older = target(cpu, EVERYTHING - {"avx512vnni"})
    for form in (Form.OUTER_PRODUCT, Form.SKINNY):
        assert {chosen(bytes_, older, form) for bytes_ in BYTES} == {f"{VPMADDWD}.i16"}
        assert chosen("i8", ALDER_LAKE, form) == "x86.avx2.vpdpbusd"


@pytest.mark.parametrize("cpu", ["emeraldrapids", "znver5"])
def test_measured_rates_go_before_the_table(cpu: str) -> None:
    dot_first = {"vdpbf16ps": 164.0, "fma.f32": 163.0, "vpdpbusd": 9.0, "mul.i32": 10.0}
    dot_first["vpmaddwd.i16"] = 8.0
    fast, slow = target(cpu, **dot_first), target(cpu, **dot_first | {"vdpbf16ps": 82.0})
    assert (chosen("bf16", fast), chosen("bf16", slow)) == (VDPBF16PS, FMA)
    assert chosen("bf16", slow, Form.SPLIT) == FMA
    assert chosen("i8", fast) == PRODUCT
    assert chosen("i8", fast, Form.SPLIT) == VPMADDWD, "of which nothing was measured"


def test_what_was_measured_is_kept_between_processes(cache: Path) -> None:
    assert kept_rates() == ()
    keep_rates({VDPBF16PS: 82.0, FMA: 163.0})
    assert kept_rates() == detect().rates == ((FMA, 163.0), (VDPBF16PS, 82.0))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"processor": "another", "rates": {"x86.avx512.fma.f32": 1.0}}']
)
def test_rates_of_another_processor_and_damaged_ones_are_none(cache: Path, text: str) -> None:
    keep_rates({FMA: 163.0})
    (cache / "instruction_rates.json").write_text(text)
    assert kept_rates() == ()


def test_this_machine_is_measured_where_it_has_a_choice(cache: Path) -> None:
    here = replace(detect(), rates=())
    found = with_rates(here, "i8")
    assert found == here if len(usable("i8", here)) == 1 else not lacks_rates("i8", found)
    assert with_rates(here, "f32") == here
    assert with_rates(target("another"), "bf16") == target("another")


FORMS = (Form.OUTER_PRODUCT, Form.SPLIT, Form.SKINNY)


def text_of(factors: str, form: Form) -> str:
    """A problem whose factors are multiplied as such."""
    keys = "i8,zero=ab" if factors == "i16" else factors.replace("*", ",b=")
    return MEANT[form][0].format(keys)


def schedule(form: Form, op: str | None) -> Schedule:
    _, before, behind = MEANT[form]
    return Schedule((*before, *([InstructionChoice(op)] if op else []), *behind))


def test_the_code_is_that_of_the_named_instruction(host: Target) -> None:
    problem, names = parse_problem(SQUARE.format("i8")), usable("i8", host)
    for fastest, op in product(names, (*names, None)):
        measured = replace(host, rates=tuple((one, 1.0 + (one == fastest)) for one in names))
        text = inner_loop(problem, schedule(Form.OUTER_PRODUCT, op), measured).text
        is_plain = (op or names[0]).endswith("mul.i32")  # None is of an older version
        assert ("pmulld" in text or "\tmul" in text) == is_plain


def test_an_instruction_that_the_target_lacks_is_refused_by_name(host: Target) -> None:
    without = replace(host, vector_bytes=64, features=host.features - {"avx512bf16"})
    with pytest.raises(LoweringError, match=r"'instruction op=x86\.avx512\.vdpbf16ps'.*tune again"):
        plan(parse_problem(SQUARE.format("bf16")), schedule(Form.OUTER_PRODUCT, VDPBF16PS), without)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [*sorted(WITH_CHOICE), "f32"])
def test_a_schedule_that_names_none_is_as_before(dtype: str, form: Form, host: Target) -> None:
    if not instructions(dtype, host, form):
        pytest.skip(f"no {form.value} kernel of {dtype}")
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


def another(dtype: str, form: Form, host: Target) -> Instruction:
    """What the host has with the most products, by another name; floats by another intrinsic."""
    best = instructions(dtype, host, form)[0]
    mine = replace(best, name=f"{best.unit}.mine", assembly=best.assembly or best.mnemonic)
    return replace(mine, intrinsic="llvm.fmuladd.{}") if best.intrinsic == "llvm.fma.{}" else mine


@pytest.mark.parametrize(("form", "dtype"), some(product(FORMS, ["f32", "bf16", "i8"]), of=4))
def test_a_kernel_is_compiled_with_it(dtype: str, form: Form, host: Target) -> None:
    problem, mine = parse_problem(text_of(dtype, form)), another(dtype, form, host)
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


@pytest.mark.parametrize("name", ["x86.avx512.vdpbf16ps", "vdpbf16ps", "riscv.rvv.fma.f32"])
def test_a_name_that_is_taken_or_of_no_unit_is_refused(name: str, host: Target) -> None:
    one = another("f32", Form.OUTER_PRODUCT, host)
    with pytest.raises(ValueError, match=f"instruction '{name}'.*x86.avx512, "):
        register(replace(one, name=name))
