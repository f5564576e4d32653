"""Schedules: their JSON, hashes and refusals, steps made of choices, and schedules of ranges."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewise.kernels.errors import ProblemError, ScheduleError
from tilewise.kernels.instructions import NAMES
from tilewise.kernels.nest import Nest
from tilewise.kernels.problem import parse_problem, parse_range
from tilewise.kernels.range_schedule import RangeSchedule, Span
from tilewise.kernels.schedule import (
    InstructionChoice,
    Jam,
    KStreams,
    Nontemporal,
    Pack,
    Prefetch,
    Register,
    Schedule,
    Skinny,
    Split,
    Step,
    Stream,
    Tile,
    Unroll,
    check_legal,
    chosen,
)
from tilewise.kernels.steps import STEPS, Part, registered

MATMUL = parse_problem("matmul:m=100,n=200,k=300,dtype=f32")
BF16 = parse_problem("matmul:m=100,n=200,k=300,dtype=bf16")
I8 = parse_problem("matmul:m=100,n=200,k=300,dtype=i8")
BF16_GROUPS = parse_problem("conv2d:n=1,h=10,w=10,ci=32,co=32,kh=3,kw=3,groups=32,dtype=bf16")
BATCHED = parse_problem("matmul:batch=3,m=10,n=20,k=30,dtype=f32")
CONV = parse_problem("conv2d:n=2,h=10,w=10,ci=8,co=32,kh=3,kw=3,dtype=f32")
SINGLE = parse_problem("conv2d:n=1,h=10,w=10,ci=8,co=32,kh=3,kw=3,dtype=f32")
PADDED = parse_problem("conv2d:n=2,h=10,w=10,ci=8,co=32,kh=3,kw=3,pad=1,dtype=f32")
NCHW = parse_problem("conv2d:n=2,h=9,w=9,ci=8,co=32,kh=3,kw=3,layout=nchw_fchw,dtype=f32")
ACROSS = parse_problem("matmul:m=100,n=200,k=300,dtype=f32,transpose_b")
DOWN = parse_problem("matmul:m=100,n=200,k=300,dtype=f32,transpose_a")
COLUMN = parse_problem("matmul:m=1,n=200,k=300,dtype=f32,transpose_a")
DEPTHWISE = parse_problem("conv2d:n=2,h=10,w=10,ci=32,co=32,kh=3,kw=3,groups=32,dtype=f32")
PAIRED = parse_problem("conv2d:n=1,h=9,w=9,ci=8,co=16,kh=3,kw=3,groups=8,dtype=f32")
PAIRED_PLANES = parse_problem(
    "conv2d:n=1,h=9,w=9,ci=8,co=16,kh=3,kw=3,groups=8,layout=nchw_fchw,dtype=f32"
)
REGISTER = Register(4, 16)
VDPBF16PS, VPDPBUSD = "x86.avx512.vdpbf16ps", "x86.avx512.vpdpbusd"
VPMADDWD = "x86.avx512.vpmaddwd"
DOT = InstructionChoice(VDPBF16PS)
SKINNY = (Stream("k", 8), Register(100, 16), Skinny("n"))
PREFETCHED = (Tile("n", 16), Pack("B"), Prefetch("B"))
PATCHED = (Tile("n", 1), Tile("p", 16), Pack("B"))
GOTO = Schedule(
    (Tile("n", 64), Stream("k", 100), Pack("B"), Tile("m", 32), Pack("A"), REGISTER, Unroll(4))
)

KINDS = sorted(STEPS.values(), key=lambda kind: kind.name)
FIELDS = [(kind, field.name) for kind in KINDS for field in fields(kind)]


def some_values(kind: type[Step], name: str) -> tuple[Any, ...]:
    """Several values of a field, by the type that the class declares."""
    if kind is InstructionChoice:
        return tuple(NAMES)
    annotation = get_type_hints(kind)[name]
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return {int: (1, 2, 48, 4096), str: ("m", "n", "k", "oh", "co")}[annotation]


def step_of(kind: type[Step], **given: object) -> Step:
    """A step of a class, each field as given or with the first of its values."""
    return kind(**{f.name: some_values(kind, f.name)[0] for f in fields(kind)} | given)


def any_step(kind: type[Step]) -> st.SearchStrategy[Step]:
    values = {f.name: st.sampled_from(some_values(kind, f.name)) for f in fields(kind)}
    return st.builds(kind, **values)


@settings(deadline=None)
@given(st.lists(st.one_of(map(any_step, KINDS)), max_size=8).map(lambda s: Schedule(tuple(s))))
def test_json_round_trip_and_stable_hash(schedule: Schedule) -> None:
    again = Schedule.from_json(json.loads(json.dumps(schedule.to_json())))
    assert again == schedule
    assert again.hash == schedule.hash


@pytest.mark.parametrize(("kind", "name"), FIELDS)
def test_hash_text_and_json_depend_on_every_field(kind: type[Step], name: str) -> None:
    values = some_values(kind, name)
    made = [Schedule((step_of(kind, **{name: value}),)) for value in values]
    assert len({schedule.hash for schedule in made}) == len(values)
    assert len({str(schedule) for schedule in made}) == len(values)
    assert [Schedule.from_json(schedule.to_json()) for schedule in made] == made


def test_hash_is_stable_and_depends_on_the_steps_and_their_order() -> None:
    assert GOTO.hash == "a0c77abbef13ad37"
    alone = [Schedule((step_of(kind),)) for kind in KINDS]
    changed = [
        Schedule(tuple(s for s in GOTO.steps if s != Pack("A"))),
        Schedule((GOTO.steps[1], GOTO.steps[0], *GOTO.steps[2:])),
    ]
    every = [GOTO, *changed, *alone, Schedule(())]
    assert len({schedule.hash for schedule in every}) == len(every)


@pytest.mark.parametrize(("kind", "name"), FIELDS)
@pytest.mark.parametrize("bad", [None, 0, True, 2.5, ["m"]])
def test_an_absent_or_bad_field_of_json_is_refused(kind, name, bad) -> None:
    source = step_of(kind).to_json()
    with pytest.raises(ScheduleError, match=f": {name} is "):
        Schedule.from_json([source | {name: bad}])
    with pytest.raises(ScheduleError, match="has the fields"):
        Schedule.from_json([{key: value for key, value in source.items() if key != name}])


@pytest.mark.parametrize(("problem", "steps", "says"), [
    (MATMUL, (Stream("k", 8), REGISTER, Skinny("n")), "give outer=rows, or all rows"),
    (MATMUL, (Stream("k", 8), Register(100, 16), Skinny("m")), "skinny takes the columns n"),
    (MATMUL, (Stream("k", 65), Register(100, 16), Skinny("n")), "by at most 64"),
    (MATMUL, (Register(100, 16), Skinny("n")), "by at most 64"),
    (MATMUL, (Stream("k", 8), Pack("B"), Register(100, 16), Skinny("n")), "in place"),
    (MATMUL, (*SKINNY[:2], KStreams("k", 2)), "k-blocks of a skinny GEMM"),
    (MATMUL, (*SKINNY, KStreams("n", 2)), "k_streams takes the reduction k"),
    (MATMUL, (*SKINNY, KStreams("k", 3)), "streams divide the 8 rows of a k-block"),
    (MATMUL, (*SKINNY, KStreams("k", 1)), "streams divide the 8 rows of a k-block"),
    (MATMUL, (Stream("k", 8), Prefetch("A"), Register(100, 16), Skinny("n")), "only B is"),
    (ACROSS, (Stream("k", 8), Register(100, 16), Skinny("n")), "not contiguous along n"),
    (DOWN, (Stream("k", 8), Register(100, 16), Skinny("n")), "a transposed A"),
    (MATMUL, (REGISTER, Jam("m", 2)), "only where a group has few channels"),
    (MATMUL, (REGISTER, Nontemporal()), "only where a group has few channels"),
    (DEPTHWISE, (REGISTER, Unroll(2)), "unrolled as they are"),
    (DEPTHWISE, (Pack("A"), REGISTER), "read in place"),
    (DEPTHWISE, (Tile("ow", 4), REGISTER), "a line is computed whole"),
    (DEPTHWISE, (Stream("ci", 1), REGISTER), "too few channels to stream"),
    (DEPTHWISE, (REGISTER,), "n is visited one at a time"),
    (DEPTHWISE, (Tile("n", 1), REGISTER, Jam("ow", 2)), "are jammed alone"),
    (DEPTHWISE, (Tile("n", 1), REGISTER, Jam("oh", 9)), "factor=2 to 8"),
    (DEPTHWISE, (Tile("n", 1), Register(9, 16)), "ow is only 8"),
    (DEPTHWISE, (Tile("n", 1), Prefetch("A"), REGISTER), "search again"),
    (DEPTHWISE, (Tile("n", 1), Tile("oh", 3), REGISTER, Jam("oh", 2)), "tile's 2"),
    (PAIRED, (Register(4, 15),), "no multiple of a group's 2 channels"),
    (PAIRED_PLANES, (Tile("co", 3), Register(4, 16)), "tile's 2"),
    (PAIRED_PLANES, (Register(4, 16), Jam("oh", 2)), "are jammed alone"),
    (MATMUL, (InstructionChoice("x86.avx512.fma.f32"), REGISTER), "one way to multiply"),
    (BF16_GROUPS, (DOT, REGISTER), "one way to multiply"),
    (BF16, (DOT, DOT, REGISTER), "written once"),
    (BF16, (DOT, Pack("B"), REGISTER), "in the order an algorithm"),
    (BF16, (REGISTER, DOT), "in the order an algorithm"),
    (BF16, (InstructionChoice(VPDPBUSD), REGISTER), "of bf16 has x86.avx512.vdpbf16ps, "),
    (I8, (InstructionChoice(VPMADDWD), REGISTER), "not split of i8 has x86.avx512.vpdpbusd, "),
    (I8, (InstructionChoice(VPDPBUSD), REGISTER, Split("k", 16)), "has x86.avx512.vpmaddwd, "),
    (MATMUL, (Pack("B"), Tile("n", 32), Prefetch("B"), REGISTER), "before the pack of B"),
    (MATMUL, (Pack("B"), Prefetch("B"), Tile("n", 32), REGISTER), "before the pack of B"),
    (MATMUL, (SKINNY[0], Prefetch("B"), Prefetch("B"), *SKINNY[1:]), "prefetched once"),
    (DOWN, (REGISTER, Split("k", 16)), "contiguous rows of A"),
    (COLUMN, (Pack("A"), Register(1, 4), Split("k", 16)), "not contiguous, even packed"),
    (MATMUL, (), "exactly one register"),
    (MATMUL, (REGISTER, REGISTER), "exactly one register"),
    (MATMUL, (REGISTER, Pack("B")), "in the order an algorithm"),
    (MATMUL, (Unroll(2), REGISTER), "in the order an algorithm"),
    (MATMUL, (REGISTER, Unroll(17)), "above 16"),
    (MATMUL, (Split("k", 16), REGISTER), "in the order an algorithm"),
    (MATMUL, (REGISTER, Unroll(2), Split("k", 16)), "in the order an algorithm"),
    (MATMUL, (REGISTER, Split("k", 16), Split("k", 16)), "in the order an algorithm"),
    (MATMUL, (REGISTER, Split("n", 16)), "split takes the reduction k"),
    (MATMUL, (REGISTER, Split("k", 1)), "lanes=2 to 256"),
    (MATMUL, (REGISTER, Split("k", 512)), "lanes=2 to 256"),
    (CONV, (REGISTER, Split("ci", 16)), "only a matmul's reduction is split"),
    (MATMUL, (Tile("oh", 4), REGISTER), "'tile dim=oh size=4'.*one of the dims m, n"),
    (MATMUL, (Tile("k", 4), REGISTER), "one of the dims"),
    (MATMUL, (Tile("n", 40), REGISTER), "not a multiple of the register tile's 16"),
    (MATMUL, (Tile("n", 64), Tile("n", 64), REGISTER), "enclosing block is only 64"),
    (MATMUL, (Stream("n", 4), REGISTER), "reduction k"),
    (MATMUL, (Stream("k", 301), REGISTER), "only 300 deep"),
    (MATMUL, (Stream("k", 10), Stream("k", 5), REGISTER), "one level"),
    (MATMUL, (Pack("B"), Stream("k", 10), REGISTER), "stream before packing"),
    (MATMUL, (Pack("B"), Pack("B"), REGISTER), "already packed"),
    (BATCHED, (Pack("B"), REGISTER), "one batch is packed at a time"),
    (BATCHED, (REGISTER,), "start with tile dim=batch size=1"),
    (CONV, (Pack("A"), REGISTER), "one n is packed at a time"),
    (CONV, (Tile("n", 2), REGISTER), "give size=1"),
    (SINGLE, (Pack("A"), Tile("n", 1), REGISTER), "it moves is already packed"),
    (NCHW, (Tile("n", 1), REGISTER), "patches of the image.*pack operand=B"),
    (NCHW, (Pack("B"), Tile("n", 1), REGISTER), "one n is packed at a time"),
    (NCHW, (Pack("B"), REGISTER), "one n is packed at a time"),
    (NCHW, (Tile("oh", 2), REGISTER), "one of the dims n, co, p"),
    (PADDED, (REGISTER,), "padding needs the image packed"),
    (MATMUL, (Pack("B"), Prefetch("B"), REGISTER), "tile n or stream k before"),
    (MATMUL, (Tile("n", 16), Prefetch("B"), Pack("B"), REGISTER), "comes after its pack"),
    (MATMUL, (Tile("n", 16), Prefetch("B"), Stream("k", 4), REGISTER), "before the prefetch"),
    (MATMUL, (Tile("n", 16), Pack("A"), Prefetch("A"), REGISTER), "only B is prefetched"),
    (MATMUL, (Tile("m", 4), Pack("B"), Prefetch("B"), REGISTER), "there is no next block"),
    (MATMUL, (Tile("n", 16), Pack("B"), Prefetch("B"), Prefetch("B"), REGISTER), "once"),
    (MATMUL, (*PREFETCHED, REGISTER, Split("k", 16)), "not read row by row"),
    (NCHW, (*PATCHED, Prefetch("B"), REGISTER), "not read row by row"),
])  # fmt: skip
def test_illegal_schedules_say_which_step_and_why(problem, steps, says) -> None:
    with pytest.raises(ScheduleError, match=says):
        check_legal(problem, Schedule(steps))


@pytest.mark.parametrize("stored", [
    {"step": "divide", "dim": "k", "size": 16}, {"step": "alternate", "dim": "n"},
], ids=lambda step: step["step"])  # fmt: skip
def test_a_step_of_an_earlier_version_is_read_and_never_applied(stored):
    schedule = Schedule.from_json([stored, REGISTER.to_json()])
    assert schedule.to_json()[0] == stored
    assert str(schedule).splitlines()[0].startswith(f"{stored['step']} dim={stored['dim']}")
    with pytest.raises(ScheduleError, match="an earlier version had this step; search again"):
        check_legal(MATMUL, schedule)
    for wrong in ({**stored, "more": 1}, {"step": stored["step"]}, {**stored, "dim": 4}):
        with pytest.raises(ScheduleError, match=stored["step"]):
            Schedule.from_json([wrong])


PROBLEM = parse_problem("matmul:batch=2,m=60,n=100,k=64,dtype=f32")
TILE = {"register": (6, 32, "cols")}


def text_of(choices: dict[str, Any], problem=PROBLEM) -> str:
    schedule = Schedule(tuple(chosen(problem, choices).steps))
    check_legal(problem, schedule)
    return str(schedule)


@pytest.mark.parametrize(("choices", "steps"), [
    ({}, ["tile dim=batch size=1"]),
    ({"parallel": "n=8"}, ["parallel dim=n parts=4", "tile dim=batch size=1"]),
    ({"cols": 40, "rows": 0}, ["tile dim=batch size=1", "tile dim=n size=32"]),
    ({"depth": 16, "pack_b": True, "prefetch": True}, ["tile dim=batch size=1",
      "stream dim=k depth=16", "pack operand=B", "prefetch operand=B"]),
    ({"pack_b": True, "prefetch": True}, ["tile dim=batch size=1", "pack operand=B"]),
])  # fmt: skip
def test_choices_make_steps_where_they_have_an_effect(choices, steps) -> None:
    division = {"parallel": choices.pop("parallel", "none")}
    found = text_of({**division, "lead": True, **choices, **TILE, "unroll": 1, "lanes": 0})
    assert found.splitlines() == [*steps, "register rows=6 cols=32 outer=cols"]


def test_a_part_is_what_is_left_to_a_thread() -> None:
    part = chosen(PROBLEM, {"parallel": "m=2,n=2", **TILE})
    assert (part.extents["m"], part.extents["n"]) == (30, 64)


def test_a_step_of_an_extension_is_made_of_choices_of_its_own() -> None:
    @dataclass(frozen=True)
    class Marked(Step):
        name: ClassVar[str] = "marked"
        choices: ClassVar[tuple[str, ...]] = ("mark",)
        size: int

        @classmethod
        def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
            return [cls(value)] if value else []

        def check(self, nest: Nest) -> None: ...

        def apply(self, nest: Nest) -> Nest:
            return nest

    with registered(Marked):
        assert "marked size=3" in text_of({"lead": True, "mark": 3, **TILE})
        assert "marked" not in text_of({"lead": True, "mark": 0, **TILE})
    with pytest.raises(KeyError):
        chosen(PROBLEM, {"mark": 3})
    Marked.choices = ("unroll",)
    with pytest.raises(ValueError, match="'unroll' makes the step Unroll"), registered(Marked):
        pass


PROBLEMS = parse_range("matmul:m=2..12:2,n=32,k=8,dtype=f32")
ONE, OTHER = Schedule((Register(4, 16),)), Schedule((Pack("B"), Register(2, 32)))
BOTH = RangeSchedule(PROBLEMS, (ONE, OTHER), (0, 0, 1, 1, 1, 0))


def test_each_size_has_its_variant() -> None:
    assert [BOTH.at(size) for size in PROBLEMS.sizes] == [ONE, ONE, OTHER, OTHER, OTHER, ONE]
    assert BOTH.sizes_of(0) == ((2,), (4,), (12,)) and BOTH.sizes_of(1) == ((6,), (8,), (10,))
    assert BOTH.spans == (Span((2,), (4,), 0), Span((6,), (10,), 1), Span((12,), (12,), 0))
    with pytest.raises(ProblemError, match="m=3 is not in"):
        BOTH.at((3,))
    BOTH.check_legal()


def test_json_gives_the_same_and_another_choice_another_hash() -> None:
    assert BOTH.to_json()["spans"] == [[2, 4, 0], [6, 10, 1], [12, 12, 0]]
    assert RangeSchedule.from_json(PROBLEMS, BOTH.to_json()) == BOTH
    assert replace(BOTH, choice=(0, 1, 1, 1, 1, 0)).hash != BOTH.hash


@given(st.lists(st.integers(0, 1), min_size=18, max_size=18).filter(lambda one: len({*one}) == 2))
def test_spans_of_two_dims_are_rectangles_that_hold_each_size_once(choice: list[int]) -> None:
    problems = parse_range("matmul:batch=1..3,m=2..12:2,n=32,k=8,dtype=f32")
    schedule = RangeSchedule(problems, (ONE, OTHER), tuple(choice))
    assert RangeSchedule.from_json(problems, schedule.to_json()) == schedule
    held: list[Any] = []
    for span in schedule.spans:
        (b, m), (last_b, last_m) = span.first, span.last
        own = list(product(range(b, last_b + 1), range(m, last_m + 1, 2)))
        assert {schedule.choice[problems.sizes.index(size)] for size in own} == {span.variant}
        held += own
    assert sorted(held) == list(problems.sizes)
    alone = replace(schedule, variants=(ONE,), choice=(0,) * 18)
    assert alone.to_json()["spans"] == [[(1, 2), (3, 12), 0]]


@pytest.mark.parametrize(
    "spans", [[[2, 6, 0], [6, 12, 1]], [[2, 4, 0], [8, 12, 1]], [[2, [4, 4], 0]], []]
)
def test_spans_hold_each_size_once(spans: list[list[int]]) -> None:
    with pytest.raises(ScheduleError, match="each size once"):
        RangeSchedule.from_json(PROBLEMS, BOTH.to_json() | {"spans": spans})


@pytest.mark.parametrize("choice", [(0, 0, 0, 0, 0, 0), (0, 1, 2, 1, 1, 0), (0, 1)])
def test_each_variant_serves_a_size(choice: tuple[int, ...]) -> None:
    with pytest.raises(ScheduleError, match=r"each variant serves a size|choices for 6 sizes"):
        replace(BOTH, choice=choice)
