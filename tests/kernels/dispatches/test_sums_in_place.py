"""Kernels that add to a tensor write over it only where nothing else needs it."""

from collections.abc import Callable

import numpy as np
import pytest

from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry
from tilewise.kernels.dispatches.library import library_text
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import Array, empty_aligned
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Register, Schedule, Tile
from tilewise.kernels.target import Target

N = 48
KIND, FLAT, IMAGE = f"tensor<{N}x{N}xf32>", f"tensor<{N * N}xf32>", f"tensor<1x{N}x1x{N}xf32>"
FILTER = f"tensor<1x1x{N}x{N}xf32>"
SUM = "matmul:m=48,n=48,k=48,dtype=f32,init=accumulate"
CONVOLUTION = "conv2d:n=1,h=48,w=1,ci=48,co=48,kh=1,kw=1,dtype=f32"
SAME = "affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>"
PARALLEL = 'iterator_types = ["parallel", "parallel", "parallel", "parallel"]'
Numpy = Callable[[Array, Array, Array], list[Array]]


def product(name: str, a: str, b: str, c: str) -> str:
    return f"%{name} = linalg.matmul ins(%{a}, %{b} : {KIND}, {KIND}) outs(%{c} : {KIND}) -> {KIND}"


def convolved(name: str, image: str) -> str:
    return f"""%{name} = linalg.conv_2d_nhwc_hwcf
      {{dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}}
      ins(%{image}, %w : {IMAGE}, {FILTER}) outs(%zeros : {IMAGE}) -> {IMAGE}"""


def function(lines: list[str], **results: str) -> str:
    names, types = (", ".join(one) for one in ([f"%{name}" for name in results], results.values()))
    body = "".join(f"  {line}\n" for line in lines)
    return (
        f"func.func @main(%a: {KIND}, %b: {KIND}, %c: {KIND}) -> ({types}) {{\n"
        f"  %zero = arith.constant 0.0 : f32\n{body}  return {names} : {types}\n}}\n"
    )


NEGATED = f"%t = arith.negf %c : {KIND}"
SELF = [
    f"%t = arith.negf %a : {KIND}",
    f"%w = tensor.expand_shape %b [[0, 1, 2], [3]] output_shape [1, 1, {N}, {N}] "
    f": {KIND} into {FILTER}",
    f"%x = tensor.expand_shape %t [[0, 1, 2], [3]] output_shape [1, {N}, 1, {N}] "
    f": {KIND} into {IMAGE}",
    f"%e = tensor.empty() : {IMAGE}",
    f"%zeros = linalg.fill ins(%zero : f32) outs(%e : {IMAGE}) -> {IMAGE}",
    convolved("y", "x"),
    f"""%r = linalg.generic {{indexing_maps = [{SAME}, {SAME}, {SAME}], {PARALLEL}}}
      ins(%y, %x : {IMAGE}, {IMAGE}) outs(%e : {IMAGE}) {{
    ^bb0(%p: f32, %q: f32, %o: f32):
      %s = arith.addf %p, %q : f32
      linalg.yield %s : f32
    }} -> {IMAGE}""",
]
FLATTENED = [
    *SELF[:3],
    f"%flat = tensor.collapse_shape %x [[0, 1, 2, 3]] : {IMAGE} into {FLAT}",
    f"%alias = tensor.expand_shape %flat [[0, 1, 2, 3]] output_shape [1, {N}, 1, {N}] "
    f": {FLAT} into {IMAGE}",
    *SELF[3:6],
    SELF[6].replace("ins(%y, %x", "ins(%y, %alias"),
]
APART = (
    f"util.func private @apart(%x: {IMAGE}, %alias: {IMAGE}, %w: {FILTER}) -> {IMAGE} "
    "attributes {inlining.policy = #util.inline.never} {\n  %zero = arith.constant 0.0 : f32\n"
    + "".join(f"  {line}\n" for line in (*SELF[3:6], FLATTENED[-1]))
    + f"  util.return %r : {IMAGE}\n}}\n"
)
CALLED = [*SELF[:3], f"%r = util.call @apart(%x, %x, %w) : ({IMAGE}, {IMAGE}, {FILTER}) -> {IMAGE}"]
CASES: dict[str, tuple[str, Numpy, tuple[int, ...]]] = {
    "alone": (function([product("r", "a", "b", "c")], r=KIND), lambda a, b, c: [c + a @ b], (2,)),
    "returned": (
        function([product("r", "a", "b", "c")], r=KIND, c=KIND),
        lambda a, b, c: [c + a @ b, c],
        (),
    ),
    "read later": (
        function([product("r", "a", "b", "c"), f"%s = arith.mulf %r, %c : {KIND}"], s=KIND),
        lambda a, b, c: [(c + a @ b) * c],
        (),
    ),
    "returned in another shape": (
        function(
            [
                product("r", "a", "b", "c"),
                f"%flat = tensor.collapse_shape %c [[0, 1]] : {KIND} into {FLAT}",
            ],
            r=KIND,
            flat=FLAT,
        ),
        lambda a, b, c: [c + a @ b, c.ravel()],
        (),
    ),
    "an operand": (
        function([product("r", "c", "c", "c")], r=KIND),
        lambda a, b, c: [c + c @ c],
        (),
    ),
    "an operand that is no argument": (
        function([NEGATED, product("r", "t", "t", "t")], r=KIND),
        lambda a, b, c: [c @ c - c],
        (),
    ),
    "an image that is added to its convolution": (
        function(SELF, r=IMAGE),
        lambda a, b, c: [-(a @ b + a).reshape(1, N, 1, N)],
        (),
    ),
    "an image that is added in another shape": (
        function(FLATTENED, r=IMAGE),
        lambda a, b, c: [-(a @ b + a).reshape(1, N, 1, N)],
        (),
    ),
    "an image that a function is given twice": (
        function(CALLED, r=IMAGE) + APART,
        lambda a, b, c: [-(a @ b + a).reshape(1, N, 1, N)],
        (),
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_what_else_is_read_keeps_its_values(case: str, host: Target) -> None:
    pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")
    text, numpy, writes = CASES[case]
    tile = Register(1, host.lanes("f32"))  # narrow: what is read is written over before long
    names = [SUM, CONVOLUTION, f"{CONVOLUTION},init=accumulate"]
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
