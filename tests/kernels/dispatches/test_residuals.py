"""Residual additions after convolutions: which op takes them in, found by IREE, and right."""

import numpy as np
import pytest

from tests.kernels.dispatches.matching import found_in, library_of, name_of, random_arrays
from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.target import Target

IMAGE, FILTER, RESULT = "tensor<1x5x7x8xf32>", "tensor<1x1x8x16xf32>", "tensor<1x5x7x16xf32>"
PLAIN = "conv2d:n=1,h=5,w=7,ci=8,co=16,kh=1,kw=1,dtype=f32"
FUSED = f"{PLAIN},init=accumulate,bias,epilogue=relu"
BIASED = f"{PLAIN},bias"
MAPS = """
#whole = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#last = affine_map<(d0, d1, d2, d3) -> (d3)>
"""
PARALLEL = 'iterator_types = ["parallel", "parallel", "parallel", "parallel"]'


def convolved(name: str, image: str, weights: str) -> str:
    """`%name`: a convolution with its bias."""
    return f"""
  %{name}_sums = linalg.conv_2d_nhwc_hwcf
    {{dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}}
    ins({image}, {weights} : {IMAGE}, {FILTER}) outs(%zeros : {RESULT}) -> {RESULT}
  %{name} = linalg.generic {{indexing_maps = [#whole, #last, #whole], {PARALLEL}}}
    ins(%{name}_sums, %bias : {RESULT}, tensor<16xf32>) outs(%empty : {RESULT}) {{
  ^bb0(%p: f32, %b: f32, %o: f32):
    %s = arith.addf %p, %b : f32
    linalg.yield %s : f32
  }} -> {RESULT}"""


def added(left: str, right: str) -> str:
    """`%sum`: relu of the sum of two tensors."""
    return f"""
  %sum = linalg.generic {{indexing_maps = [#whole, #whole, #whole], {PARALLEL}}}
    ins({left}, {right} : {RESULT}, {RESULT}) outs(%empty : {RESULT}) {{
  ^bb0(%l: f32, %q: f32, %o: f32):
    %s = arith.addf %l, %q : f32
    %r = arith.maximumf %s, %zero : f32
    linalg.yield %r : f32
  }} -> {RESULT}"""


def module(*lines: str, name: str = "kernel") -> str:
    """A function of an image, two filters, a bias and a shortcut; its result is `%sum`."""
    return f"""{MAPS}
func.func @{name}(%image: {IMAGE}, %first: {FILTER}, %second: {FILTER}, %bias: tensor<16xf32>,
    %short: {RESULT}, %out: {RESULT} {{iree.abi.output = 0 : index}}) -> {RESULT} {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : {RESULT}
  %zeros = linalg.fill ins(%zero : f32) outs(%empty : {RESULT}) -> {RESULT}{"".join(lines)}
  return %sum : {RESULT}
}}
"""


def negated(name: str) -> str:
    """`%name`: the shortcut with the other sign."""
    return f"""
  %{name} = linalg.generic {{indexing_maps = [#whole, #whole], {PARALLEL}}}
    ins(%short : {RESULT}) outs(%empty : {RESULT}) {{
  ^bb0(%x: f32, %o: f32):
    %n = arith.negf %x : f32
    linalg.yield %n : f32
  }} -> {RESULT}"""


ONE = convolved("y", "%image", "%first")
TWO = ONE + convolved("z", "%image", "%second")
BESIDE = negated("other") + ONE


def problems_of(text: str) -> list[str]:
    return [one.problem for one in read_module(text.encode()).occurrences]


@pytest.mark.parametrize("sides", [("%y", "%other"), ("%other", "%y")])
def test_a_shortcut_on_either_side_belongs_to_the_convolution(sides: tuple[str, str]) -> None:
    text = module(BESIDE, added(*sides))
    (found,) = read_module(text.encode()).occurrences
    assert found.problem == FUSED and found.fused == ("bias", "addition", "relu")
    assert found_in(text, library_of(FUSED, BIASED)) == {"kernel": [name_of(FUSED)]}


@pytest.mark.parametrize("order", ["yz", "zy"])
@pytest.mark.parametrize("sides", [("%y", "%z"), ("%z", "%y")])
def test_of_two_convolutions_the_one_on_the_right_starts_from_the_other(
    sides: tuple[str, str], order: str
) -> None:
    """Whichever comes first: IREE may have them in another order."""
    filters = {"y": "%first", "z": "%second"}
    text = module(*(convolved(one, "%image", filters[one]) for one in order), added(*sides))
    expected = [FUSED if sides[1] == f"%{one}" else BIASED for one in order]
    assert problems_of(text) == expected
    found = found_in(text, library_of(FUSED, BIASED))
    assert found == {"kernel": [name_of(BIASED), name_of(FUSED)]}
    assert {cut.problem for cut in cut_module(text.encode())} == {FUSED, BIASED}


@pytest.mark.parametrize("sides", [("%y", "%late"), ("%late", "%y")])
def test_the_shortcut_may_be_made_after_the_convolution(sides: tuple[str, str]) -> None:
    text = module(ONE, negated("late"), added(*sides))
    assert problems_of(text) == [FUSED]
    assert found_in(text, library_of(FUSED, BIASED)) == {"kernel": [name_of(FUSED)]}


def test_a_shortcut_that_depends_on_the_convolution_is_none() -> None:
    text = module(ONE, negated("late").replace("ins(%short", "ins(%y"), added("%y", "%late"))
    assert problems_of(text) == [BIASED]


def test_a_sum_that_others_read_before_relu_is_none() -> None:
    twice = module(BESIDE, added("%y", "%other")).replace(
        "return %sum", f"{added('%y', '%sum').replace('%sum =', '%again =')}\n  return %again"
    )
    assert problems_of(twice) == [BIASED]


@pytest.mark.parametrize("sides", [("%y", "%short"), ("%short", "%y")])
def test_what_belongs_to_the_caller_is_not_written_over(sides: tuple[str, str]) -> None:
    """Nor by a library that has the kernel for other places: IREE would not copy the argument."""
    text = module(ONE, added(*sides))
    assert problems_of(text) == [BIASED]
    assert found_in(text, library_of(FUSED, BIASED)) == {"kernel": [name_of(BIASED)]}
    (cut,) = cut_module(text.encode())
    assert cut.problem == BIASED


LOOPED = f"""
  %from = arith.constant 0 : index
  %step = arith.constant 1 : index
  %to = arith.constant 3 : index
  %last = scf.for %i = %from to %to step %step iter_args(%before = %zeros) -> ({RESULT}) {{
    {added("%y", "%other")}
    %next = arith.addf %sum, %before : {RESULT}
    scf.yield %next : {RESULT}
  }}"""
JUMPED = f"""
  %from = arith.constant 0 : i32
  %step = arith.constant 1 : i32
  %to = arith.constant 3 : i32
  cf.br ^head(%from, %zeros : i32, {RESULT})
^head(%i: i32, %last: {RESULT}):
  %more = arith.cmpi slt, %i, %to : i32
  cf.cond_br %more, ^again, ^end
^again:
  {added("%y", "%other")}
  %next = arith.addf %sum, %last : {RESULT}
  %j = arith.addi %i, %step : i32
  cf.br ^head(%j, %next : i32, {RESULT})
^end:"""


@pytest.mark.parametrize("loop", [LOOPED, JUMPED], ids=["loop", "jumps"])
def test_what_a_loop_reads_again_is_not_written_over(loop: str) -> None:
    """Neither what a convolution is added to nor what a product starts from."""
    inside = loop.replace(added("%y", "%other"), ONE + added("%y", "%other"))
    text = module(negated("other"), inside).replace("return %sum", "return %last")
    assert found_in(text, library_of(FUSED, BIASED)) == {"kernel": [name_of(BIASED)]}
    product = "matmul:m=5,n=16,k=8,dtype=f32,init=accumulate"
    kind, a, b = "tensor<5x16xf32>", "tensor<5x8xf32>", "tensor<8x16xf32>"
    sums = f"""
      %sum = linalg.matmul ins(%a, %b : {a}, {b}) outs(%other : {kind}) -> {kind}"""
    start = f"""
      func.func @kernel(%a: {a}, %b: {b}, %other: {kind}) -> {kind} {{
        %zeros = arith.constant dense<0.0> : {kind}"""
    looped = loop.replace(added("%y", "%other"), sums).replace(RESULT, kind)
    end = f"\n  return %last : {kind}\n}}"
    assert found_in(start + looped + end, library_of(product)) == {}
    once = start + sums + end.replace("%last", "%sum")
    assert found_in(once, library_of(product)) == {"kernel": [name_of(product)]}


@pytest.mark.parametrize("shape", ["5x7x16", "5x1x1x7x16"])
def test_what_belongs_to_the_caller_stays_so_in_another_shape(shape: str) -> None:
    """One reshape or two: none of them copies."""
    line, short = "tensor<5x7x16xf32>", f"tensor<{shape}xf32>"
    flat = (
        ""
        if short == line
        else f"""
  %flat = tensor.collapse_shape %short [[0, 1, 2], [3], [4]] : {short} into {line}"""
    )
    grown = f"""{flat}
  %grown = tensor.expand_shape {"%flat" if flat else "%short"} [[0, 1], [2], [3]]
    output_shape [1, 5, 7, 16] : {line} into {RESULT}"""
    text = module(grown, ONE, added("%y", "%grown")).replace(
        f"%short: {RESULT}", f"%short: {short}"
    )
    assert problems_of(text) == [BIASED]
    assert found_in(text, library_of(FUSED, BIASED)) == {"kernel": [name_of(BIASED)]}
    (cut,) = cut_module(text.encode())
    assert cut.problem == BIASED


def test_a_product_leaves_its_residual_to_others() -> None:
    matmul = """
    func.func @f(%a: tensor<6x8xf32>, %b: tensor<8x32xf32>, %c: tensor<6x32xf32>)
        -> tensor<6x32xf32> {
      %zero = arith.constant 0.0 : f32
      %empty = tensor.empty() : tensor<6x32xf32>
      %zeros = linalg.fill ins(%zero : f32) outs(%empty : tensor<6x32xf32>) -> tensor<6x32xf32>
      %p = linalg.matmul ins(%a, %b : tensor<6x8xf32>, tensor<8x32xf32>)
        outs(%zeros : tensor<6x32xf32>) -> tensor<6x32xf32>
      %s = arith.addf %p, %c : tensor<6x32xf32>
      return %s : tensor<6x32xf32>
    }"""
    assert problems_of(matmul) == ["matmul:m=6,n=32,k=8,dtype=f32"]


RUN = {
    "a shortcut": (BESIDE + added("%other", "%y"), FUSED),
    "two convolutions": (TWO + added("%y", "%z"), FUSED),
    "an argument": (ONE + added("%short", "%y"), BIASED),
}


@pytest.mark.full
@pytest.mark.parametrize("case", RUN)
@pytest.mark.parametrize("by", ["known patterns", "patterns of the module"])
def test_the_result_is_right_and_the_shortcut_stays_as_it_was(
    case: str, by: str, host: Target
) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    lines, last = RUN[case]
    text = module(lines)
    assert problems_of(text)[-1] == last
    schedule = Schedule((Pack("B"), Register(2, host.lanes("f32"))))
    problems = [parse_problem(one) for one in problems_of(text)]
    kernels = [compiled(LibraryEntry(one, schedule), host) for one in problems]
    cuts = patterns_of(cut_module(text.encode())) if by == "patterns of the module" else {}
    made = compiled_with(text, text_of(kernels, host, (), cuts))
    assert set(made.kernels) == {kernel.name for kernel in kernels}
    arrays = random_arrays(
        (1, 5, 7, 8), (1, 1, 8, 16), (1, 1, 8, 16), (16,), (1, 5, 7, 16), (1, 5, 7, 16)
    )
    image, first, second, bias, short, out = arrays
    before = short.copy()
    run = LoadedModule(made.code, open_device(1)).bind("kernel", [(one, "f32") for one in arrays])
    run(2)
    others = {
        "a shortcut": -before,
        "two convolutions": image @ second[0, 0] + bias,
        "an argument": before,
    }
    wanted = np.maximum(image @ first[0, 0] + bias + others[case], 0)
    np.testing.assert_allclose(out, wanted, atol=1e-5)
    np.testing.assert_array_equal(short, before)
