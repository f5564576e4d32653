import functools
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.footprint import working_bytes
from tilewise.kernels.problem import DTYPES, Conv2d, Matmul, parse_problem, with_accuracy
from tilewise.kernels.problem.window import Pads

sizes = st.integers(1, 2**31 - 1)
small = st.integers(1, 64)
epilogues = st.sampled_from(["none", "relu"])
weights = st.sampled_from(["variable", "constant"])
accuracies = st.sampled_from(["standard", "strict"])
matmuls = st.builds(
    Matmul,
    batch=small,
    m=sizes,
    n=sizes,
    k=sizes,
    dtype=st.sampled_from(sorted(DTYPES)),
    transpose_a=st.booleans(),
    transpose_b=st.booleans(),
    init=st.sampled_from(["zero", "accumulate"]),
    bias=st.booleans(),
    epilogue=epilogues,
    weights=weights,
    accuracy=accuracies,
)
convolutions = st.builds(
    Conv2d,
    n=small,
    h=st.integers(32, 300),
    w=st.integers(32, 300),
    ci=small.map(lambda x: 2 * x),
    co=small.map(lambda x: 2 * x),
    kh=st.integers(1, 7),
    kw=st.integers(1, 7),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 3),
    pad=st.integers(0, 3),
    groups=st.sampled_from([1, 2]),
    layout=st.sampled_from(["nhwc_hwcf", "nchw_fchw"]),
    dtype=st.sampled_from(sorted(DTYPES)),
    bias=st.booleans(),
    epilogue=epilogues,
    weights=weights,
    accuracy=accuracies,
)


@given(matmuls | convolutions)
def test_strings_and_json_round_trip(problem: Matmul | Conv2d) -> None:
    assert parse_problem(problem.canonical) == problem
    assert parse_problem(json.loads(json.dumps(problem.to_json()))) == problem
    assert parse_problem(parse_problem(problem.to_json()).canonical).key == problem.key


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("matmul: k=3 ,m=1, n=2,dtype=f32", "matmul:m=1,n=2,k=3,dtype=f32"),
        (
            "matmul:m=1,n=2,k=3,dtype=f32,init=zero,bias=false,batch=1",
            "matmul:m=1,n=2,k=3,dtype=f32",
        ),
        (
            "matmul:transpose_b=true,batch=12,m=8,n=8,k=4,dtype=f32",
            "matmul:batch=12,m=8,n=8,k=4,dtype=f32,transpose_b",
        ),
        (
            "conv2d:n=1,h=9,w=9,ci=4,co=4,kh=3,kw=3,dtype=f32,pad=1,stride=2,epilogue=relu,bias",
            "conv2d:n=1,h=9,w=9,ci=4,co=4,kh=3,kw=3,stride=2,pad=1,dtype=f32,bias,epilogue=relu",
        ),
        ("matmul:zero=ab,b=i8,dtype=u8,m=1,n=2,k=3", "matmul:m=1,n=2,k=3,dtype=u8,b=i8,zero=ab"),
        ("matmul:m=1,n=2,k=3,dtype=u8,b=u8", "matmul:m=1,n=2,k=3,dtype=u8"),
        (
            "matmul:m=1,n=2,k=64,dtype=f32,b=i4,group=64,zero_b=none,weights=constant",
            "matmul:m=1,n=2,k=64,dtype=f32,b=i4,group=k,scale=f32,weights=constant",
        ),
    ],
)
def test_normalised(written: str, canonical: str) -> None:
    assert parse_problem(written).canonical == canonical


@pytest.mark.parametrize(
    ("written", "field", "says"),
    [
        ("gemm:m=1", "op", "gemm"),
        ("no colon", "problem", "no colon"),
        ("matmul:m=1,n=2,k=3", "dtype", "missing"),
        ("matmul:m=1,n=2,dtype=f32", "k", "missing"),
        ("matmul:m=0,n=2,k=3,dtype=f32", "m", "m=0"),
        ("matmul:m=-5,n=2,k=3,dtype=f32", "m", "m=-5"),
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
    ],
)
def test_bad_problems_name_the_key(written: str, field: str, says: str) -> None:
    with pytest.raises(ProblemError, match=says) as caught:
        parse_problem(written)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("stride=2x2,dilation=1x1,pad=1x1", "stride=2,pad=1"),
        ("stride=2x1,dilation=1x3,pad=1x2x1x2", "stride=2x1,dilation=1x3,pad=1x2"),
        ("pad=0x0x1x1,stride=2", "stride=2,pad=0x0x1x1"),
        ("pad=0x0", ""),
    ],
)
def test_sides_have_one_canonical_form(written: str, canonical: str) -> None:
    sizes = "conv2d:n=1,h=9,w=9,ci=3,co=4,kh=3,kw=3,"
    found = parse_problem(f"{sizes}{written},dtype=f32")
    assert found == parse_problem(found.canonical)
    assert found.canonical == f"{sizes}{canonical}{',' * bool(canonical)}dtype=f32"


def test_pads_are_by_side() -> None:
    found = parse_problem("conv2d:n=1,h=9,w=9,ci=3,co=4,kh=3,kw=3,pad=1x2x3x4,stride=2x3,dtype=f32")
    assert found.pads == Pads(top=1, left=2, bottom=3, right=4) and found.strides == (2, 3)
    assert found.padded_shape == (1, 13, 15, 3)
    assert found.operand_shapes["C"] == (1, 6, 5, 4)


HOSTILE = ["\0", "\ud800", "a\udcff", "\x1b[2J", "\u202e", "\u2028", "a\nb", "é", "x" * 500]
_SQUARE = {"op": "matmul", "m": 1, "n": 2, "k": 3, "dtype": "f32"}


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
@pytest.mark.parametrize(
    "place",
    [
        lambda text: text,
        lambda text: f"{text}:m=1",
        lambda text: f"{text}:=1",
        lambda text: f"matmul:{text}",
        lambda text: f"matmul:{text}=",
        lambda text: f"matmul:{text}=1",
        lambda text: f"matmul:{text}=1,{text}=2",
        lambda text: f"matmul:m={text},n=2,k=3,dtype=f32",
        lambda text: f"matmul:m=1,n=2,k=3,dtype={text}",
        lambda text: f"matmul:m=1,n=2,k=3,dtype=f32,bias={text}",
        lambda text: json.dumps({"op": text}),
        lambda text: json.dumps(_SQUARE | {text: 1}),
        lambda text: json.dumps(_SQUARE | {"epilogue": text}),
        lambda text: "{" + f"{json.dumps(text)}: 1, {json.dumps(text)}: 2" + "}",
        lambda text: {"op": text},
        lambda text: _SQUARE | {text: 1},
        lambda text: _SQUARE | {"m": text},
        lambda text: _SQUARE | {"bias": {text: [text]}},
    ],
)
def test_what_cannot_be_shown_is_in_no_error(
    place: Callable[[str], str | dict[str, object]], text: str
) -> None:
    with pytest.raises(ProblemError) as caught:
        parse_problem(place(text))
    for shown in (str(caught.value), caught.value.field):
        assert shown.isprintable() and shown.encode()
        assert len(shown) < 400


@pytest.mark.parametrize("name", ["m", "dtype", "bias"])
@pytest.mark.parametrize(
    "value",
    [
        *(-1, 0.5, 1e400, -1e400, float("nan"), None, [], {}),
        *(2**31, 2**63, -(2**64), 10**40, 10**5000, -(10**5000)),
        functools.reduce(lambda inner, _: [inner], range(5000), 0),
        functools.reduce(lambda inner, _: {"m": inner}, range(5000), 0),
    ],
    ids=lambda value: type(value).__name__,
)
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


def test_stride_dilation_and_padding_decide_the_size_of_a_result() -> None:
    keys = "kh=3,kw=5,stride=2,dilation=2,pad=1"
    problem = parse_problem(f"conv2d:n=1,h=20,w=15,ci=4,co=8,{keys},dtype=f32")
    assert problem.operand_shapes["C"] == (1, 9, 5, 8)
