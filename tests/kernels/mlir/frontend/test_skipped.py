"""Ops that multiply two tensors: nests as matmuls, and the true reason of those that are none."""

import pytest

from tilewise.kernels.errors import PlaceError
from tilewise.kernels.mlir.frontend.nest import (
    ContractionNest,
    NestOperand,
    NestRefusedError,
    matmul_layout,
)
from tilewise.kernels.mlir.frontend.read import read_graph, read_module, read_op

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


A, B, C = "(m, k)", "(k, n)", "(m, n)"
OF_A, OF_B, OF_C = (f"affine_map<(m, n, k) -> {one}>" for one in (A, B, C))
SUMS = 'iterator_types = ["parallel", "parallel", "reduction"]'
TYPE = "tensor<8x8xf32>"
PRODUCT = """%p = arith.mulf %x, %y : f32
    %t = arith.addf %o, %p : f32
    linalg.yield %t : f32"""


def generic(
    body: str = PRODUCT,
    *,
    a: str = A,
    b: str = B,
    loops: str = "m, n, k",
    kinds: tuple[str, str, str] = (TYPE, TYPE, TYPE),
    sums: int = 1,
) -> str:
    """A function with a generic of two inputs, which starts from an argument."""
    maps = ", ".join(f"affine_map<({loops}) -> {one}>" for one in (a, b, C))
    each = ["parallel"] * 2 + ["reduction"] * sums
    iterators = ", ".join(f'"{one}"' for one in each)
    elements = [kind.partition("x8x")[2].removesuffix(">") for kind in kinds]
    given = ", ".join(f"%{name}: {kind}" for name, kind in zip("xyo", elements, strict=True))
    arguments = ", ".join(f"%{name}: {kind}" for name, kind in zip("abc", kinds, strict=True))
    return f"""func.func @f({arguments}) -> {kinds[2]} {{
  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}}
    ins(%a, %b : {kinds[0]}, {kinds[1]}) outs(%c : {kinds[2]}) {{
  ^bb0({given}):
    {body}
  }} -> {kinds[2]}
  return %r : {kinds[2]}
}}"""


def typed(kind: str, wide: str | None = None, other: str | None = None) -> tuple[str, str, str]:
    return f"tensor<8x8x{kind}>", f"tensor<8x8x{other or kind}>", f"tensor<8x8x{wide or kind}>"


FMA = "%t = math.fma %x, %y, %o : f32\n    linalg.yield %t : f32"
COMPLEX = """%p = complex.mul %x, %y : complex<f32>
    %t = complex.add %o, %p : complex<f32>
    linalg.yield %t : complex<f32>"""
MIXED = f"%y1 = arith.sitofp %y : i8 to f32\n    {PRODUCT.replace('%y ', '%y1 ')}"
TWO = f"""func.func @f(%a: {TYPE}, %b: {TYPE}, %c: {TYPE}) -> ({TYPE}, {TYPE}) {{
  %r:2 = linalg.generic {{indexing_maps = [{OF_A}, {OF_B}, {OF_C}, {OF_C}], {SUMS}}}
    ins(%a, %b : {TYPE}, {TYPE}) outs(%c, %c : {TYPE}, {TYPE}) {{
  ^bb0(%x: f32, %y: f32, %o: f32, %q: f32):
    %p = arith.mulf %x, %y : f32
    %t = arith.addf %o, %p : f32
    %u = arith.maximumf %q, %p : f32
    linalg.yield %t, %u : f32, f32
  }} -> ({TYPE}, {TYPE})
  return %r#0, %r#1 : {TYPE}, {TYPE}
}}"""
GATHERED = f"""func.func @f(%a: {TYPE}, %b: {TYPE}, %c: {TYPE}) -> {TYPE} {{
  %r = linalg.generic {{indexing_maps = [{OF_B}, {OF_C}], {SUMS}}}
    ins(%b : {TYPE}) outs(%c : {TYPE}) {{
  ^bb0(%y: f32, %o: f32):
    %i = linalg.index 0 : index
    %k = linalg.index 2 : index
    %x = tensor.extract %a[%i, %k] : {TYPE}
    {PRODUCT}
  }} -> {TYPE}
  return %r : {TYPE}
}}"""
BUFFERS = f"""func.func @f(%a: memref<8x8xf32>, %b: memref<8x8xf32>, %c: memref<8x8xf32>) {{
  linalg.generic {{indexing_maps = [{OF_A}, {OF_B}, {OF_C}], {SUMS}}}
    ins(%a, %b : memref<8x8xf32>, memref<8x8xf32>) outs(%c : memref<8x8xf32>) {{
  ^bb0(%x: f32, %y: f32, %o: f32):
    {PRODUCT}
  }}
  return
}}"""
LOOPS = """func.func @f(%a: memref<8xf32>, %b: memref<8xf32>, %z: f32) -> f32 {
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %8 = arith.constant 8 : index
  %r = scf.for %i = %0 to %8 step %1 iter_args(%s = %z) -> f32 {
    %x = memref.load %a[%i] : memref<8xf32>
    %y = memref.load %b[%i] : memref<8xf32>
    %p = arith.mulf %x, %y : f32
    %t = arith.addf %s, %p : f32
    scf.yield %t : f32
  }
  return %r : f32
}"""
HALVED = PRODUCT.replace("%o, %p", "%o, %q").replace(
    "%t =", "%h = arith.constant 0.5 : f32\n    %q = arith.mulf %p, %h : f32\n    %t =", 1
)
DEEP = PRODUCT.replace("%o, %p", "%o, %p59").replace(
    "%t =",
    "%p0 = arith.mulf %p, %p : f32\n"
    + "\n".join(f"    %p{i} = arith.mulf %p{i - 1}, %p{i - 1} : f32" for i in range(1, 60))
    + "\n    %t =",
)
CHOICE = """%z = arith.constant 0.0 : f32
    %v = arith.cmpf ogt, %x, %z : f32
    %p = scf.if %v -> f32 {
      %q = arith.mulf %x, %y : f32
      scf.yield %q : f32
    } else {
      scf.yield %z : f32
    }
    %t = arith.addf %o, %p : f32
    linalg.yield %t : f32"""
THREE = f"""func.func @f(%a: {TYPE}, %b: {TYPE}, %s: tensor<8xf32>, %c: {TYPE}) -> {TYPE} {{
  %r = linalg.generic {{indexing_maps = [{OF_A}, {OF_B}, affine_map<(m, n, k) -> (k)>, {OF_C}],
    {SUMS}}}
    ins(%a, %b, %s : {TYPE}, {TYPE}, tensor<8xf32>) outs(%c : {TYPE}) {{
  ^bb0(%x: f32, %y: f32, %w: f32, %o: f32):
    %y1 = arith.divf %y, %w : f32
    {PRODUCT.replace("%y ", "%y1 ")}
  }} -> {TYPE}
  return %r : {TYPE}
}}"""
SUMMED_LATER = f"""func.func @f(%a: {TYPE}, %b: {TYPE}, %c: {TYPE}) -> {TYPE} {{
  %e = tensor.empty() : tensor<8x8x8xf32>
  %m = linalg.generic {{indexing_maps = [affine_map<(m, k, n) -> (m, k)>,
    affine_map<(m, k, n) -> (k, n)>, affine_map<(m, k, n) -> (m, k, n)>],
    iterator_types = ["parallel", "parallel", "parallel"]}}
    ins(%a, %b : {TYPE}, {TYPE}) outs(%e : tensor<8x8x8xf32>) {{
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    linalg.yield %p : f32
  }} -> tensor<8x8x8xf32>
  %r = linalg.reduce {{arith.addf}} ins(%m : tensor<8x8x8xf32>) outs(%c : {TYPE}) dimensions = [1]
  return %r : {TYPE}
}}"""
MAXIMUM = "%t = arith.maximumf %x, %o : f32\n    linalg.yield %t : f32"
SQUARES = PRODUCT.replace("arith.mulf %x, %y", "arith.mulf %x, %x")

LISTED = {
    "division": (generic(a="(m, k floordiv 2)"), "reads input 1 at d2 floordiv 2;"),
    "remainder": (generic(b="(k mod 4, n)"), "reads input 2 at d2 mod 4;"),
    "offset": (generic(a="(m + 1, k)", kinds=("tensor<9x8xf32>", TYPE, TYPE)),
               "reads input 1 at d0 + 1;"),
    "two results": (TWO, "has 2 results"),
    "two types": (generic(MIXED, kinds=typed("f32", None, "i8")), "multiplies f32 by i8"),
    "complex": (generic(COMPLEX, kinds=typed("complex<f32>")), "multiplies complex<f32>"),
    "subtracted": (generic(PRODUCT.replace("arith.addf", "arith.subf")),
                   "computes out - in1 * in2; known is"),
    "scaled": (generic(HALVED), "computes out + (in1 * in2) * 0.5;"),
    "divided": (generic(PRODUCT.replace("mulf", "divf")), "computes out + (in1 / in2);"),
    "not added": (generic("%p = arith.mulf %x, %y : f32\n    linalg.yield %p : f32"),
                  "computes in1 * in2;"),
    "deep": (generic(DEEP), "computes out + (((((...) * (...)) * ((...) * (...)))"),
    "regions": (generic(CHOICE), "has a body with regions"),
    "three inputs": (THREE, "has 3 inputs, and computes out + in1 * (in2 / in3);"),
    "summed later": (SUMMED_LATER, "makes products that another op sums"),
    "sums of one input": (generic(b="(l, n)", loops="m, n, k, l", sums=2),
                          "sums the first input alone"),
    "gathered": (GATHERED, "tensor.extract"),
    "buffers": (BUFFERS, "works on buffers"),
    "loops": (LOOPS, "multiplies numbers or vectors in loops"),
    "pool": (generic(MAXIMUM, a="(m + k, n)", kinds=("tensor<15x8xf32>", TYPE, TYPE)),
             "is a pooling"),
}  # fmt: skip


@pytest.mark.parametrize("name", LISTED)
def test_a_product_that_is_no_problem_has_its_reason(name: str) -> None:
    text, reason = LISTED[name]
    imported = read_module(text.encode())
    assert not imported.occurrences
    assert [one.reason for one in imported.skipped if reason in one.reason], imported.skipped
    assert len(imported.skipped) == 1
    graph = read_graph(text.encode())
    (node,) = (node for node in graph.nodes if node.reason)
    assert reason in node.reason
    assert (node.kind == "pool") == (graph.why_no_layer == "") == (name == "pool")


def test_products_added_by_fma_are_a_matmul() -> None:
    problem = "matmul:m=8,n=8,k=8,dtype=f32,init=accumulate"
    (found,) = read_module(generic(FMA).encode()).occurrences
    assert found.problem == problem
    with pytest.raises(PlaceError, match=r"math\.fma, which scripts do not match"):
        read_op(generic(FMA).encode())
    other = FMA.replace("%x, %y, %o", "%x, %o, %y")
    (skipped,) = read_module(generic(other).encode()).skipped
    assert "computes math.fma(in1, out, in2)" in skipped.reason


def test_sums_of_squares_and_products_by_element_are_not_listed() -> None:
    by_element = generic(a="(m, n)", b="(m, n)", loops="m, n", sums=0)
    for text in (generic(SQUARES, b="(m, n)"), by_element):
        imported = read_module(text.encode())
        assert not imported.occurrences
        assert not imported.skipped


EXTENTS = {"b": 2, "c": 3, "m": 4, "n": 5, "o": 6, "k": 7, "l": 8, "u": 1}


def nest(a: str, b: str, c: str) -> ContractionNest:
    """`C[c] += A[a] * B[b]`, an index a letter."""
    letters = sorted({*a, *b, *c})

    def operand(read: str) -> NestOperand:
        axes = tuple(((letters.index(letter), 1),) for letter in read)
        return NestOperand(axes, tuple(EXTENTS[letter] for letter in read))

    return ContractionNest(
        tuple(EXTENTS[letter] for letter in letters), operand(a), operand(b), operand(c)
    )


@pytest.mark.parametrize(("a", "b", "c", "keys"), [
    ("mk", "kn", "mn", "m=4 n=5 k=7"), ("km", "kn", "mn", "m=4 n=5 k=7 transpose_a"),
    ("mk", "nk", "mn", "m=4 n=5 k=7 transpose_b"), ("bmk", "bkn", "bmn", "batch=2 m=4 n=5 k=7"),
    ("bcmk", "bckn", "bcmn", "batch=6 m=4 n=5 k=7"), ("bmk", "kn", "bmn", "m=8 n=5 k=7"),
    ("mkl", "kln", "mn", "m=4 n=5 k=56"), ("mk", "kno", "mno", "m=4 n=30 k=7"),
    ("k", "kn", "n", "n=5 k=7"), ("mk", "k", "m", "m=4 k=7"), ("m", "n", "mn", "m=4 n=5"),
    ("umk", "kun", "umn", "m=4 n=5 k=7"),
])  # fmt: skip
def test_a_matmul_whose_operands_stay_where_they_are(a: str, b: str, c: str, keys: str) -> None:
    found = matmul_layout(nest(a, b, c))
    told = [
        key if value is True else f"{key}={value}"
        for key, value in found.sizes.items()
        if value not in (False, 1) or value is True
    ]
    assert told == keys.split()
    assert found.moved == 0 and not found.is_swapped


def test_a_turned_result_changes_the_inputs_over_and_the_cheapest_operand_moves() -> None:
    found = matmul_layout(nest("mk", "kn", "nm"))
    assert found.is_swapped and found.moved == 0
    assert (found.sizes["m"], found.sizes["n"]) == (5, 4)
    assert found.columns == {1}
    mixed = nest("mk", "knl", "mnl")
    assert matmul_layout(mixed).moved == 0
    turned = nest("bmk", "nbk", "bmn")  # the batch of B is not its first axis
    assert matmul_layout(turned).axes[1] in ((1, 2, 0), (1, 0, 2))
    assert matmul_layout(turned).moved == 2 * 5 * 7 + 1
    assert matmul_layout(turned, (1, 0, 1)).moved == 1


@pytest.mark.parametrize(("a", "b", "c", "reason"), [
    ("mkl", "kn", "mn", "sums the first input alone"),
    ("mk", "knl", "mn", "sums the second input alone"), ("mk", "kn", "mno", "repeats its result"),
    ("mkk", "kn", "mn", "diagonal"),
])  # fmt: skip
def test_what_is_none_is_refused(a: str, b: str, c: str, reason: str) -> None:
    with pytest.raises(NestRefusedError, match=reason):
        matmul_layout(nest(a, b, c))
