"""Problems and ranges of problems: how they are written, what they mean, what is refused."""

import functools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.strategies import problems
from tilewise.kernels.errors import ProblemError
from tilewise.kernels.footprint import working_bytes
from tilewise.kernels.problem import (
    Matmul,
    Problem,
    ProblemRange,
    parse_any,
    parse_problem,
    parse_range,
    with_accuracy,
)
from tilewise.kernels.problem.spatial import Pads


@given(problems, st.sampled_from(["standard", "strict"]), st.integers(1, 2**31 - 1))
def test_strings_and_json_round_trip(problem: Problem, accuracy: str, size: int) -> None:
    keys = {"accuracy": accuracy} if problem.dtype in ("f32", "f64") else {}
    keys |= {"n": size} if not problem.quantised_weights else {}
    problem = parse_problem(problem.to_json() | keys)
    assert parse_problem(problem.canonical) == problem
    assert parse_problem(json.loads(json.dumps(problem.to_json()))) == problem
    assert parse_problem(parse_problem(problem.to_json()).canonical).key == problem.key


VOLUME = "conv3d:n=1,d=4,h=9,w=8,ci=3,co=5,kd=2,kh=3,kw=3"
PLAIN = "matmul:m=1,n=2,k=3,dtype=f32"


@pytest.mark.parametrize(("written", "canonical"), [
    ("matmul: k=3 ,m=1, n=2,dtype=f32", PLAIN),
    ("matmul:m=1,n=2,k=3,dtype=f32,init=zero,bias=false,batch=1", PLAIN),
    ("matmul:transpose_b=true,batch=12,m=8,n=8,k=4,dtype=f32",
     "matmul:batch=12,m=8,n=8,k=4,dtype=f32,transpose_b"),
    ("conv2d:n=1,h=9,w=9,ci=4,co=4,kh=3,kw=3,dtype=f32,pad=1,stride=2,epilogue=relu,bias",
     "conv2d:n=1,h=9,w=9,ci=4,co=4,kh=3,kw=3,stride=2,pad=1,dtype=f32,bias,epilogue=relu"),
    ("matmul:zero=ab,b=i8,dtype=u8,m=1,n=2,k=3", "matmul:m=1,n=2,k=3,dtype=u8,b=i8,zero=ab"),
    ("matmul:m=1,n=2,k=3,dtype=u8,b=u8", "matmul:m=1,n=2,k=3,dtype=u8"),
    ("matmul:m=1,n=2,k=64,dtype=f32,b=i4,group=64,zero_b=none,weights=constant",
     "matmul:m=1,n=2,k=64,dtype=f32,b=i4,group=k,scale=f32,weights=constant"),
])  # fmt: skip
def test_a_problem_has_one_canonical_string(written: str, canonical: str) -> None:
    assert parse_problem(written).canonical == canonical


@pytest.mark.parametrize(("written", "field", "says"), [
    ("gemm:m=1", "op", "gemm"), ("no colon", "problem", "no colon"),
    ("matmul:m=1,n=2,k=3", "dtype", "missing"), ("matmul:m=1,n=2,dtype=f32", "k", "missing"),
    ("matmul:m=0,n=2,k=3,dtype=f32", "m", "m=0"), ("matmul:m=-5,n=2,k=3,dtype=f32", "m", "m=-5"),
    ("matmul:m=1.5,n=2,k=3,dtype=f32", "m", "1.5"),
    ("matmul:m=99999999999,n=2,k=3,dtype=f32", "m", "out of range"),
    ("matmul:m=1,m=2,n=2,k=3,dtype=f32", "m", "twice"),
    ("matmul:m=1,n=2,k=3,dtype=f32,bias,bias", "bias", "twice"),
    ("matmul:m=1,n=2,k=3,dtype=f99", "dtype", "f99"),
    ("matmul:m=1,n=2,k=3,dtype=f32,colour=red", "colour", "colour"),
    ("matmul:m,n=2,k=3,dtype=f32", "m", "needs a value"),
    ("matmul:m=1,n=2,k=3,dtype=f32,bias=3", "bias", "3"),
    ("matmul:m=1,n=2,k=3,dtype=f32,epilogue=tanh", "epilogue", "tanh"),
    ("matmul:m=1,n=2,k=3,dtype=f32,out=bf16", "out", "is for dtype=bf16 and f16"),
    ("matmul:m=1,n=2,k=3,dtype=i8,out=f16", "out", "is for dtype=bf16 and f16"),
    ("matmul:m=1,n=2,k=3,dtype=bf16,out=i8", "out", "goes with out=i8 or u8 and sums of i32"),
    ("matmul:m=1,n=2,k=3,dtype=i8,requant=tensor", "requant", "found requant=tensor, out=none"),
    ("matmul:m=1,n=2,k=3,dtype=i8,out=u8", "out", "found requant=none, out=u8"),
    ("matmul:m=1,n=2,k=3,dtype=i8,out=u8,add,requant=tensor", "add", "leave out add"),
    ("matmul:m=1,n=2,k=3,dtype=bf16,out=i16", "out", "is not one of f32, bf16, f16, i8, u8"),
    ("matmul:m=1,n=2,k=3,dtype=f16,init=accumulate,add", "add", "give one of them"),
    ("matmul:m=1,n=2,k=3,dtype=f64,epilogue=gelu", "epilogue", "give dtype=f32, bf16 or f16"),
    ("matmul:m=1,n=2,k=3,dtype=i8,epilogue=silu", "epilogue", "give dtype=f32, bf16 or f16"),
    ("matmul:m=1,n=2,k=3,dtype=i8,epilogue=relu6", "epilogue", "needs a dtype of floats"),
    ("matmul:m=1,n=2,k=3,dtype=i32,zero=a", "zero", "zero=a is for dtype=i8 and u8, not i32"),
    ("matmul:m=1,n=2,k=3,dtype=f16,b=i8", "b", "b=i8 is for dtype=i8 and u8, not f16"),
    ("matmul:m=1,n=2,k=3,dtype=i8,zero=ba", "zero", "is not one of a, b, ab"),
    ("matmul:m=1,n=2,k=3,dtype=f32,", "problem", "key=value"),
    ("conv2d:n=1,h=2,w=9,ci=1,co=1,kh=3,kw=3,dtype=f32", "kh", "spans 3"),
    ("conv2d:n=1,h=9,w=9,ci=3,co=4,kh=3,kw=3,groups=2,dtype=f32", "groups", "ci=3"),
    ("conv2d:n=1,h=9,w=9,ci=3,co=4,kh=3,kw=3,stride=0x1,dtype=f32", "stride", "stride='0x1'"),
    ("conv2d:n=1,h=9,w=9,ci=3,co=4,kh=3,kw=3,stride=1x2x3,dtype=f32", "stride", "N or HxW"),
    ("conv2d:n=1,h=9,w=9,ci=3,co=4,kh=3,kw=3,pad=1x2x3,dtype=f32", "pad", "TOPxLEFTx"),
    ("conv2d:n=1,h=9,w=9,ci=3,co=4,kh=3,kw=3,pad=-1,dtype=f32", "pad", "pad=-1"),
    ("conv2d:n=1,h=9,w=9,ci=3,co=4,kh=3,kw=3,dilation=x,dtype=f32", "dilation", "'x'"),
    ("conv2d:n=1,h=9,w=1,ci=3,co=4,kh=3,kw=3,pad=9x0,dtype=f32", "kw", "has only 1"),
    (f"{VOLUME},dtype=f32,stride=1x2", "stride", "N or DxHxW"),
    (f"{VOLUME},dtype=f32,pad=1x2x3x4", "pad", "FRONTxTOPxLEFTxBACKxBOTTOMxRIGHT"),
    (f"{VOLUME},dtype=f32,groups=2", "groups", "unknown key 'groups'"),
    (f"{VOLUME},dtype=f32,dilation=4x1x1", "kd", "d=4 with pad=0 has only 4"),
    (f"{VOLUME},dtype=f32,layout=nhwc_hwcf", "layout", "one of ndhwc_dhwcf, ncdhw_fcdhw"),
    ("x" * 1001, "problem", "at most 1000 characters"),
    ('{"op": "matmul", "m": ' + "9" * 5000 + "}", "problem", "at most 1000 characters"),
    ('{"op": "matmul", "m": 1, "m": 2}', "m", "'m' is given twice"),
    ("matmul:m=1,n=2,k=64,dtype=f32,b=i4,weights=constant", "group", "needs group"),
    ("matmul:m=1,n=2,k=64,dtype=f32,b=i4,group=17,weights=constant", "group", "power of two"),
    ("matmul:m=1,n=2,k=64,dtype=f32,b=i4,group=32", "weights", "packed ahead"),
    ("matmul:m=1,n=2,k=64,dtype=f16,b=i4,group=32,weights=constant", "dtype", "f32 or bf16"),
    ("matmul:m=1,n=2,k=64,dtype=i8,b=i4", "dtype", "f32 or bf16"),
    ("matmul:m=1,n=2,k=64,dtype=f32,b=i4,group=32,zero_b=u8,weights=constant", "zero_b", "u4"),
    ("matmul:m=1,n=2,k=64,dtype=f32,a=dynamic_i8", "a", "quantised weights"),
    ("matmul:batch=2,m=1,n=2,k=64,dtype=f32,b=i8,group=32,weights=constant", "batch", "leave"),
])  # fmt: skip
def test_bad_problems_name_the_key(written: str, field: str, says: str) -> None:
    with pytest.raises(ProblemError, match=says) as caught:
        parse_problem(written)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("written", "canonical"), [
    ("stride=2x2,dilation=1x1,pad=1x1", "stride=2,pad=1"),
    ("stride=2x1,dilation=1x3,pad=1x2x1x2", "stride=2x1,dilation=1x3,pad=1x2"),
    ("pad=0x0x1x1,stride=2", "stride=2,pad=0x0x1x1"),
    ("pad=0x0", ""),
])  # fmt: skip
def test_sides_have_one_canonical_form(written: str, canonical: str) -> None:
    sizes = "conv2d:n=1,h=9,w=9,ci=3,co=4,kh=3,kw=3,"
    found = parse_problem(f"{sizes}{written},dtype=f32")
    assert found == parse_problem(found.canonical)
    assert found.canonical == f"{sizes}{canonical}{',' * bool(canonical)}dtype=f32"


def test_strides_dilations_and_pads_by_side_decide_the_size_of_a_result() -> None:
    found = parse_problem("conv2d:n=1,h=9,w=9,ci=3,co=4,kh=3,kw=3,pad=1x2x3x4,stride=2x3,dtype=f32")
    assert found.pads == Pads((1, 2, 3, 4)) and found.strides == (2, 3)
    assert found.padded_shape == (1, 13, 15, 3)
    assert found.operand_shapes["C"] == (1, 6, 5, 4)
    keys = "kh=3,kw=5,stride=2,dilation=2,pad=1"
    found = parse_problem(f"conv2d:n=1,h=20,w=15,ci=4,co=8,{keys},dtype=f32")
    assert found.operand_shapes["C"] == (1, 9, 5, 8)
    found = parse_problem(f"{VOLUME},stride=1x2x1,pad=1x2x3x1x2x3,layout=ncdhw_fcdhw,dtype=f32")
    assert found.canonical.startswith(f"{VOLUME},stride=1x2x1,pad=1x2x3,layout=ncdhw_fcdhw")
    assert [*found.operand_shapes.values()] == [
        (1, 3, 4, 9, 8), (5, 3, 2, 3, 3), (1, 5, 5, 6, 12)]  # fmt: skip


HOSTILE = ["\0", "\ud800", "a\udcff", "\x1b[2J", "\u202e", "\u2028", "a\nb", "é", "x" * 500]
_SQUARE = {"op": "matmul", "m": 1, "n": 2, "k": 3, "dtype": "f32"}


def places(text: str) -> list[str | dict[str, object]]:
    """Problems with a text in each place that one can have."""
    matmul = [f"matmul:{text}", f"matmul:{text}=", f"matmul:{text}=1", f"matmul:{text}=1,{text}=2"]
    values = [f"matmul:m={text},n=2,k=3,dtype=f32", f"{PLAIN},bias={text}"]
    keys = [{"op": text}, _SQUARE | {text: 1}, _SQUARE | {"epilogue": text}]
    twice = "{" + f"{json.dumps(text)}: 1, {json.dumps(text)}: 2" + "}"
    others = [_SQUARE | {"m": text}, _SQUARE | {"bias": {text: [text]}}]
    written = [text, f"{text}:m=1", f"{text}:=1", f"matmul:m=1,n=2,k=3,dtype={text}"]
    return [*written, *matmul, *values, *map(json.dumps, keys), twice, *keys, *others]


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_errors_are_printable(text: str) -> None:
    for place in places(text):
        with pytest.raises(ProblemError) as caught:
            parse_problem(place)
        for shown in (str(caught.value), caught.value.field):
            assert shown.isprintable() and shown.encode() and len(shown) < 400


@pytest.mark.parametrize("name", ["m", "dtype", "bias"])
@pytest.mark.parametrize("value", [
    *(-1, 0.5, 1e400, -1e400, float("nan"), None, [], {}),
    *(2**31, 2**63, -(2**64), 10**40, 10**5000, -(10**5000)),
    functools.reduce(lambda inner, _: [inner], range(5000), 0),
    functools.reduce(lambda inner, _: {"m": inner}, range(5000), 0),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_a_value_of_another_kind_names_its_key(name: str, value: object) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_problem(_SQUARE | {name: value})
    assert caught.value.field == name
    assert len(str(caught.value)) < 300


def test_extents_beyond_64_bits_are_counted_exactly() -> None:
    most = 2**31 - 1
    problem = Matmul(batch=most, m=most, n=most, k=most, dtype="f64")
    assert problem.flops == 2 * most**4
    assert problem.bytes == 3 * 8 * most**3
    assert working_bytes(problem) > problem.bytes


def test_key_is_the_hash_of_the_canonical_string() -> None:
    problem = parse_problem("matmul:m=1024,n=512,k=2048,dtype=i32")
    assert problem.key == ("e8bdf1861fa7b4ef5474c423088e712775581d035c579d5a16e4b28cee1ef4e7")


def test_accuracy_is_part_of_the_problem() -> None:
    """The default is left out, so that what is stored of a problem stays its own."""
    text = "conv2d:n=1,h=9,w=9,ci=8,co=8,kh=3,kw=3,dtype=f32"
    assert parse_problem(f"{text},accuracy=standard").canonical == text
    strict = parse_problem(f"{text},accuracy=strict")
    assert strict.canonical == f"{text},accuracy=strict" and strict.is_strict
    assert not parse_problem(text).is_strict
    assert with_accuracy(text, "strict") == strict.canonical
    assert with_accuracy(strict.canonical, "standard") == text
    with pytest.raises(ProblemError, match="accuracy='loose' is not one of standard, strict"):
        parse_problem(f"{text},accuracy=loose")


RANGE = "matmul:m=1..512,n=4096,k=4096,dtype=bf16,weights=constant"
KEY = "8eef889a6c765464f7a59c6660ff4c1481a5ee6677df9d518e51cf551bcef2c7"


@pytest.mark.parametrize(("text", "canonical", "ranges"), [
    (RANGE, RANGE, {"m": range(1, 513)}),
    ("matmul: dtype=f32, k=8, n=9, m=1..512:8", "matmul:m=8..512:8,n=9,k=8,dtype=f32",
     {"m": range(8, 513, 8)}),
    ("matmul:k=8..64:8,n=9,m=4,dtype=f32,batch=1..8",
     "matmul:batch=1..8,m=4,n=9,k=8..64:8,dtype=f32", {"batch": range(1, 9), "k": range(8, 65, 8)}),
    ('{"op": "conv2d", "n": "2..32:5", "h": 7, "w": 7, "ci": 3, "co": 8, "kh": 3, "kw": 3, '
     '"dtype": "f32"}', "conv2d:n=5..30:5,h=7,w=7,ci=3,co=8,kh=3,kw=3,dtype=f32",
     {"n": range(5, 31, 5)}),
])  # fmt: skip
def test_a_range_has_one_string(text: str, canonical: str, ranges: dict[str, range]) -> None:
    found = parse_range(text)
    assert found.canonical == canonical
    assert (found.dims, found.ranges) == (tuple(ranges), tuple(ranges.values()))
    assert parse_range(found.canonical) == found == parse_range(found.to_json())
    assert parse_range(found.canonical).key == found.key


@given(st.integers(1, 7), st.integers(1, 70))
def test_each_size_is_a_problem_of_the_range(batch: int, m: int) -> None:
    found = parse_range("matmul:batch=2..6,m=8..64:8,n=9,k=8,dtype=f32")
    problem = parse_problem(f"matmul:batch={batch},m={m},n=9,k=8,dtype=f32")
    assert found.size_of(problem) == (batch, m)
    assert found.holds(problem) == ((batch, m) in found.sizes)
    assert not found.holds(parse_problem({**problem.to_json(), "bias": True}))
    assert not found.holds(parse_problem("conv2d:n=8,h=7,w=7,ci=3,co=8,kh=3,kw=3,dtype=f32"))
    if found.holds(problem):
        assert found.at((batch, m)) == problem
    else:
        text = rf"m={m} is not in 8\.\.64:8|batch={batch} is not in 2\.\.6"
        with pytest.raises(ProblemError, match=text):
            found.at((batch, m))


@pytest.mark.parametrize(("text", "field", "message"), [
    ("matmul:m=4,n=9,k=8,dtype=f32", "problem", "one or two sizes have.*none has one"),
    ("matmul:m=1..4,n=2..9,k=8..9,dtype=f32", "m", "m and n and k have one"),
    ("matmul:m=4..4,n=9,k=8,dtype=f32", "m", "holds no two sizes"),
    ("matmul:m=9..4,n=9,k=8,dtype=f32", "m", "holds no two sizes"),
    ("matmul:m=1..9:0,n=9,k=8,dtype=f32", "m", "holds no two sizes"),
    ("matmul:m=1..9999,n=9,k=8,dtype=f32", "m", "9999 sizes in m='1..9999', more than 4096"),
    ("matmul:k=1..99,m=1..99,n=9,dtype=f32", "m", "9801 sizes in m='1..99' and k='1..99'"),
    ("matmul:m=1..4000000000:4000000,n=9,k=8,dtype=f32", "m", "out of range"),
    ("matmul:m=1..9,n=9,k=8..9,dtype=f32,weights=constant", "k", "changes their shape"),
    ("matmul:m=1..4,n=9,k=8,dtype=f33", "dtype", "f33"),
    ("conv2d:n=1,h=7..9,w=7,ci=3,co=8,kh=3,kw=3,dtype=f32", "h", "sizes that may have one"),
    ("matmul:m=4,n=9,k=32..96:32,dtype=f32,b=i4,group=64,weights=constant", "k", "other keys"),
])  # fmt: skip
def test_what_is_no_range_is_refused(text: str, field: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message) as raised:
        parse_range(text)
    assert raised.value.field == field


def test_either_is_read() -> None:
    assert parse_range(RANGE).key == KEY
    assert isinstance(parse_any(RANGE), ProblemRange)
    assert parse_any(PLAIN) == parse_problem(PLAIN)
    with pytest.raises(ProblemError, match="is a range; give one size"):
        parse_problem(RANGE)
