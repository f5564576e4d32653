"""Kernels that add to a tensor, also residuals, write over it only where nothing else needs it."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.cases import some
from tests.kernels.dispatches.matching import (
    CONVOLUTION,
    found_in,
    function,
    generic,
    library_of,
    name_of,
    op,
    random_arrays,
    run_with_kernels,
    tensor,
    zeros,
)
from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import library_text, text_of
from tilewise.kernels.mlir.frontend.read import read_module
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array, empty_aligned
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Tile
from tilewise.kernels.target import Target

pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")

N = 48
KIND, FLAT, COLUMN = tensor(N, N), tensor(N * N), tensor(1, N, 1, N)
SQUARE = tensor(1, 1, N, N)
SUM = "matmul:m=48,n=48,k=48,dtype=f32,init=accumulate"
COLUMNS = "conv2d:n=1,h=48,w=1,ci=48,co=48,kh=1,kw=1,dtype=f32"
ADD, SAME = "%end = arith.addf %x0, %x1 : f32", "a b c d, a b c d -> a b c d"
Numpy = Callable[[Array, Array, Array], list[Array]]


def product(name: str, a: str, b: str, c: str) -> str:
    return op(name, "matmul", {f"%{a}": KIND, f"%{b}'": KIND}, f"%{c}", KIND)


def main(*lines: str, **results: str) -> str:
    """A function of three matrices with some results."""
    names, kinds = ", ".join(f"%{name}" for name in results), ", ".join(results.values())
    text = function(dict.fromkeys("abc", KIND), f"({kinds})", *lines)
    return text.replace(f"return %r : ({kinds})", f"return {names} : {kinds}")


NEGATED = f"\n  %t = arith.negf %c : {KIND}"
RESHAPED = f"""
  %t = arith.negf %a : {KIND}
  %w = tensor.expand_shape %b [[0, 1, 2], [3]] output_shape [1, 1, {N}, {N}]
    : {KIND} into {SQUARE}
  %x = tensor.expand_shape %t [[0, 1, 2], [3]] output_shape [1, {N}, 1, {N}]
    : {KIND} into {COLUMN}"""
ALIASED = f"""
  %flat = tensor.collapse_shape %x [[0, 1, 2, 3]] : {COLUMN} into {FLAT}
  %alias = tensor.expand_shape %flat [[0, 1, 2, 3]] output_shape [1, {N}, 1, {N}]
    : {FLAT} into {COLUMN}"""
CONVOLVED = zeros("z", COLUMN) + op("s", CONVOLUTION, {"%x": COLUMN, "%w": SQUARE}, "%z", COLUMN)
OF_ITSELF = CONVOLVED + generic("r", SAME, {"%s": COLUMN, "%x": COLUMN}, "%z_e", COLUMN, ADD)
OF_ALIAS = CONVOLVED + generic("r", SAME, {"%s": COLUMN, "%alias": COLUMN}, "%z_e", COLUMN, ADD)
APART = f"""util.func private @apart(%x: {COLUMN}, %alias: {COLUMN}, %w: {SQUARE}) -> {COLUMN}
    attributes {{inlining.policy = #util.inline.never}} {{
  %zero = arith.constant 0.0 : f32{OF_ALIAS}
  util.return %r : {COLUMN}
}}
"""
CALL = f"\n  %r = util.call @apart(%x, %x, %w) : ({COLUMN}, {COLUMN}, {SQUARE}) -> {COLUMN}"


def negated_sum(a: Array, b: Array, _: Array) -> list[Array]:
    return [-(a @ b + a).reshape(1, N, 1, N)]


CASES: dict[str, tuple[str, Numpy, tuple[int, ...]]] = {
    "alone": (main(product("r", "a", "b", "c"), r=KIND), lambda a, b, c: [c + a @ b], (2,)),
    "returned": (
        main(product("r", "a", "b", "c"), r=KIND, c=KIND), lambda a, b, c: [c + a @ b, c], ()
    ),
    "read later": (
        main(product("r", "a", "b", "c"), f"\n  %s = arith.mulf %r, %c : {KIND}", s=KIND),
        lambda a, b, c: [(c + a @ b) * c], (),
    ),
    "returned in another shape": (
        main(product("r", "a", "b", "c"),
             f"\n  %flat = tensor.collapse_shape %c [[0, 1]] : {KIND} into {FLAT}",
             r=KIND, flat=FLAT),
        lambda a, b, c: [c + a @ b, c.ravel()], (),
    ),
    "an operand": (main(product("r", "c", "c", "c"), r=KIND), lambda a, b, c: [c + c @ c], ()),
    "an operand that is no argument": (
        main(NEGATED, product("r", "t", "t", "t"), r=KIND), lambda a, b, c: [c @ c - c], ()
    ),
    "added to its convolution": (main(RESHAPED, OF_ITSELF, r=COLUMN), negated_sum, ()),
    "added in another shape": (main(RESHAPED, ALIASED, OF_ALIAS, r=COLUMN), negated_sum, ()),
    "passed twice to a function": (main(RESHAPED, CALL, r=COLUMN) + APART, negated_sum, ()),
}  # fmt: skip


@pytest.mark.parametrize("case", some(CASES, all_of=2))
def test_what_else_is_read_keeps_its_values(case: str, host: Target) -> None:
    text, numpy, writes = CASES[case]
    tile = Register(1, host.lanes("f32"))  # narrow: what is read is written over before long
    names = [SUM, COLUMNS, f"{COLUMNS},init=accumulate"]
    entries = [
        LibraryEntry(problem, Schedule((Tile("n", 1), tile) if name is not SUM else (tile,)))
        for name, problem in ((name, parse_problem(name)) for name in names)
    ]
    made = compiled_with(text, library_text(entries, host))
    assert len(made.kernels) == 1
    rng = np.random.default_rng(5)
    arrays = [empty_aligned((N, N), np.float32) for _ in range(3)]
    for one in arrays:
        one[...] = rng.uniform(-1, 1, one.shape)
    module = LoadedModule(made.code, open_device(1))
    results, overwritten = module.results_and_writes("main", [(a, "FLOAT_32") for a in arrays])
    assert overwritten == writes
    for found, right in zip(results, numpy(*arrays), strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


IMAGE, FILTER, RESULT = tensor(1, 5, 7, 8), tensor(1, 1, 8, 16), tensor(1, 5, 7, 16)
PLAIN = "conv2d:n=1,h=5,w=7,ci=8,co=16,kh=1,kw=1,dtype=f32"
FUSED, BIASED = f"{PLAIN},init=accumulate,bias,epilogue=relu", f"{PLAIN},bias"


def convolved(name: str, image: str, weights: str) -> str:
    """`%name`: a convolution with its bias."""
    sums = op(f"{name}_sums", CONVOLUTION, {image: IMAGE, weights: FILTER}, "%zeros", RESULT)
    ins = {f"%{name}_sums": RESULT, "%bias": tensor(16)}
    return sums + generic(name, "a b c d, d -> a b c d", ins, "%zeros_e", RESULT, ADD)


def added(left: str, right: str, name: str = "r") -> str:
    """Relu of the sum of two tensors."""
    body = "%s = arith.addf %x0, %x1 : f32", "%end = arith.maximumf %s, %zero : f32"
    return generic(name, SAME, {left: RESULT, right: RESULT}, "%zeros_e", RESULT, *body)


def module(*lines: str, short: str = RESULT) -> str:
    """A function of an image, two filters, a bias and a shortcut."""
    arguments = {"image": IMAGE, "first": FILTER, "second": FILTER, "bias": tensor(16),
                 "short": short, "out": f"{RESULT} {{iree.abi.output = 0 : index}}"}  # fmt: skip
    return function(arguments, RESULT, zeros("zeros", RESULT), *lines, name="kernel")


def negated(name: str, of: str = "%short") -> str:
    """`%name`: the shortcut with the other sign."""
    body = "%end = arith.negf %x0 : f32"
    return generic(name, "a b c d -> a b c d", {of: RESULT}, "%zeros_e", RESULT, body)


ONE = convolved("y", "%image", "%first")
TWO = ONE + convolved("z", "%image", "%second")
BESIDE = negated("other") + ONE


def problems_of(text: str) -> list[str]:
    return [one.problem for one in read_module(text.encode()).occurrences]


@pytest.mark.parametrize("lines", [BESIDE, ONE + negated("other")], ids=["before", "after"])
@pytest.mark.parametrize("sides", [("%y", "%other"), ("%other", "%y")])
def test_a_shortcut_belongs_to_the_convolution(sides: tuple[str, str], lines: str) -> None:
    """On either side of the sum, and made before or after the convolution."""
    text = module(lines, added(*sides))
    (found,) = read_module(text.encode()).occurrences
    assert found.problem == FUSED and found.fused == ("bias", "addition", "relu")
    assert found_in(text, library_of(FUSED, BIASED)) == {"kernel": [name_of(FUSED)]}


@pytest.mark.parametrize("order", ["yz", "zy"])
@pytest.mark.parametrize("sides", [("%y", "%z"), ("%z", "%y")])
def test_the_right_of_two_convolutions_starts_from_the_other(sides, order) -> None:
    """Whichever comes first: IREE may have them in another order."""
    filters = {"y": "%first", "z": "%second"}
    text = module(*(convolved(one, "%image", filters[one]) for one in order), added(*sides))
    expected = [FUSED if sides[1] == f"%{one}" else BIASED for one in order]
    assert problems_of(text) == expected
    found = found_in(text, library_of(FUSED, BIASED))
    assert found == {"kernel": [name_of(BIASED), name_of(FUSED)]}
    assert {cut.problem for cut in cut_module(text.encode())} == {FUSED, BIASED}


def test_other_additions_are_none() -> None:
    """Of what depends on the convolution, or that others read before relu."""
    dependent = module(ONE, negated("late", of="%y"), added("%y", "%late"))
    twice = module(BESIDE, added("%y", "%other", name="sum"), added("%y", "%sum"))
    assert problems_of(dependent) == problems_of(twice) == [BIASED]


@pytest.mark.parametrize("sides", ["%p, %c", "%c, %p", "%q, %p"])
def test_a_product_adds_a_tensor_also_an_argument(sides: str, host: Target) -> None:
    """Of two products the right one adds the other."""
    a, b, c = tensor(6, 8), tensor(8, 32), tensor(6, 32)
    lines = [op(one, "matmul", {"%a": a, f"%{of}": b}, "%z", c) for one, of in ("pb", "qd")]
    lines = [zeros("z", c), *lines, f"\n  %r = arith.addf {sides} : {c}"]
    x, first, other, second = arrays = random_arrays((6, 8), (8, 32), (6, 32), (8, 32))
    schedule = Schedule((Register(2, host.lanes("f32")),))
    text = function({"a": a, "b": b, "c": c, "d": b}, c, *lines)
    cuts, found = run_with_kernels(text, host, arrays, schedule)
    problems = ["matmul:m=6,n=32,k=8,dtype=f32,add", "matmul:m=6,n=32,k=8,dtype=f32"]
    assert [cut.problem for cut in cuts] == problems[: 1 + ("q" in sides)]
    np.testing.assert_allclose(found, x @ first + (x @ second if "q" in sides else other), 0, 1e-5)


@pytest.mark.parametrize("shape", ["1x5x7x16", "5x7x16", "5x1x1x7x16"])
@pytest.mark.parametrize("is_left", [False, True])
def test_what_belongs_to_the_caller_is_not_written_over(shape: str, is_left: bool) -> None:
    """Nor by a library that has the kernel for other places: IREE would not copy the argument.

    One reshape or two: none of them copies.
    """
    line, short = tensor(5, 7, 16), f"tensor<{shape}xf32>"
    flat = f"\n  %flat = tensor.collapse_shape %short [[0, 1, 2], [3], [4]] : {short} into {line}"
    grown = f"""{flat * (short != line)}
  %grown = tensor.expand_shape {"%short" if short == line else "%flat"} [[0, 1], [2], [3]]
    output_shape [1, 5, 7, 16] : {line} into {RESULT}"""
    value, before = ("%short", "") if short == RESULT else ("%grown", grown)
    sides = (value, "%y") if is_left else ("%y", value)
    text = module(before, ONE, added(*sides), short=short)
    assert problems_of(text) == [BIASED]
    assert found_in(text, library_of(FUSED, BIASED)) == {"kernel": [name_of(BIASED)]}
    (cut,) = cut_module(text.encode())
    assert cut.problem == BIASED


LOOPED = f"""
  %from = arith.constant 0 : index
  %step = arith.constant 1 : index
  %to = arith.constant 3 : index
  %last = scf.for %i = %from to %to step %step iter_args(%before = %zeros) -> ({RESULT}) {{
    {added("%y", "%other", name="sum")}
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
  {added("%y", "%other", name="sum")}
  %next = arith.addf %sum, %last : {RESULT}
  %j = arith.addi %i, %step : i32
  cf.br ^head(%j, %next : i32, {RESULT})
^end:"""


@pytest.mark.parametrize("loop", [LOOPED, JUMPED], ids=["loop", "jumps"])
def test_what_a_loop_reads_again_is_not_written_over(loop: str) -> None:
    """Neither what a convolution is added to nor what a product starts from."""
    sums = added("%y", "%other", name="sum")
    inside = loop.replace(sums, ONE + sums)
    text = module(negated("other"), inside).replace("return %r", "return %last")
    assert found_in(text, library_of(FUSED, BIASED)) == {"kernel": [name_of(BIASED)]}
    product = "matmul:m=5,n=16,k=8,dtype=f32,init=accumulate"
    kind, a, b = tensor(5, 16), tensor(5, 8), tensor(8, 16)
    line = op("sum", "matmul", {"%a": a, "%b": b}, "%other", kind)
    start = f"\n  %zeros = arith.constant dense<0.0> : {kind}"
    arguments = {"a": a, "b": b, "other": kind}
    looped = loop.replace(sums, line).replace(RESULT, kind)
    again = function(arguments, kind, start, looped).replace("return %r", "return %last")
    assert found_in(again, library_of(product)) == {}
    once = function(arguments, kind, line.replace("%sum", "%r"))
    assert found_in(once, library_of(product)) == {"main": [name_of(product)]}


RUN = {
    "a shortcut": (BESIDE + added("%other", "%y"), FUSED),
    "two convolutions": (TWO + added("%y", "%z"), FUSED),
    "an argument": (ONE + added("%short", "%y"), BIASED),
}


@pytest.mark.full
@pytest.mark.parametrize(("case", "by"), [
    ("a shortcut", "known patterns"), ("a shortcut", "patterns of the module"),
    ("two convolutions", "patterns of the module"), ("an argument", "known patterns"),
])  # fmt: skip
def test_the_result_is_right_and_the_shortcut_unchanged(case: str, by: str, host: Target) -> None:
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
