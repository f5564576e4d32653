"""Kernels of ranges, in modules of one op and in models with a dynamic dim of each frontend."""

from dataclasses import replace

import numpy as np
import pytest

from tests.cases import some
from tests.kernels.dispatches.matching import (
    CONVOLUTION,
    MULTIPLY_ADD,
    function,
    generic,
    op,
    tensor,
    zeros,
)
from tests.kernels.mlir.frontend.test_onnx import model
from tests.search.peers.test_peers import require
from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.dispatches.patterns.any_size import of_size, range_patterns
from tilewise.kernels.dispatches.patterns.pattern import (
    ENTRY,
    SCOPE,
    WEIGHTS,
    module_of_contraction,
)
from tilewise.kernels.errors import UnsupportedError
from tilewise.kernels.mlir.frontend.dims import parse_dims
from tilewise.kernels.mlir.frontend.read import as_module
from tilewise.kernels.mlir.iree.compiler import compile_module
from tilewise.kernels.mlir.iree.runtime import LoadedModule, Parameters, open_device
from tilewise.kernels.native.range_plan import served_sizes
from tilewise.kernels.oracle.operands import empty_aligned, make_operands, poison
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import ProblemRange, parse_any, parse_problem, parse_range
from tilewise.kernels.range_schedule import RangeSchedule
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target, resolve
from tilewise.search.model.analytical import AnalyticalModel
from tilewise.search.model.prior import prior_points
from tilewise.search.space.space import Space

pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")

RANGES = [
    ("matmul:m=4..64:4,n=48,k=96,dtype=f32,bias,weights=constant", [(1,), (6,), (68,)]),
    ("matmul:batch=2..4,m=1..9,n=32,k=24,dtype=bf16", [(3, 10), (5, 9), (1, 4)]),
    ("conv2d:n=1..4,h=6,w=6,ci=16,co=16,kh=3,kw=3,dtype=f32", [(5,)]),
]


def first_schedule(problems: ProblemRange, target: Target) -> RangeSchedule:
    """The model's first schedule for the largest size that serves all sizes."""
    space, sizes = Space(problems.at(problems.sizes[-1]), target), problems.sizes
    found = next(
        one for one in map(space.schedule, prior_points(AnalyticalModel.shipped(space), 200))
        if isinstance(one, Schedule) and len(served_sizes(problems, one, target)) == len(sizes)
    )  # fmt: skip
    return RangeSchedule(problems, (found,), (0,) * len(sizes))


@pytest.mark.full
@pytest.mark.parametrize(("text", "outside"), RANGES)
def test_sizes_of_a_range_alone_call_the_kernel(text: str, outside: list[tuple[int, ...]]) -> None:
    """The kernel also takes the relu, which the module does not, so that its results differ."""
    require("iree+tilewise")
    plain, own, target = parse_range(text), parse_range(f"{text},epilogue=relu"), resolve("host")
    whole = first_schedule(own, target)
    made = compiled(LibraryEntry(own.smallest, whole), target)
    kernel = replace(made, problem=plain.smallest, schedule=replace(whole, problems=plain))
    pattern, constant = range_patterns(plain)[0], plain.smallest.has_constant_weights
    module = module_of_contraction(pattern, has_constant_weights=constant)
    code = compiled_with(module, text_of([kernel], target)).code
    inside = [plain.sizes[0], plain.sizes[len(plain.sizes) // 2], plain.sizes[-1]]
    for size in (*inside, *outside):
        sizes = dict(zip(plain.dims, size, strict=True))
        problem = parse_problem({**plain.smallest.to_json(), **sizes})
        operands = make_operands(problem)
        given = [(operands[name], "") for name in ("A", "B", *problem.extras)]
        given = [
            (array.reshape(value.shape or ()), value.element)
            for (array, _), value in zip(given, of_size(pattern, size).operands, strict=True)
        ]
        weights = Parameters(SCOPE, {WEIGHTS: given.pop(1)[0]}) if constant else None
        shape = of_size(pattern, size).result.shape or ()
        out = empty_aligned(shape, operands["C"].dtype.type)
        poison(out)
        result = (out, pattern.result.element)
        LoadedModule(code, open_device(1), weights).bind(ENTRY, [*given, result])(1)
        exact = reference(problem, operands).value.reshape(shape)
        assert (exact < 0).any()
        expected = np.maximum(exact, 0) if size in inside else exact
        np.testing.assert_allclose(out, expected, rtol=1e-2, atol=1e-2, err_msg=f"{size}")


def test_ranges_that_add_to_their_result_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="give a single size"):
        range_patterns(parse_range("matmul:m=1..8,n=32,k=24,dtype=f32,init=accumulate"))


RANDOM = np.random.default_rng(0)


def constant(*shape: int) -> str:
    """A constant attribute of random values."""
    values = RANDOM.standard_normal(shape).astype(np.float32) / 8
    return f'dense<"0x{values.tobytes().hex()}"> : {tensor(*shape)}'


IN, HIDDEN, OUT = tensor("?", 48), tensor("?", 96), tensor("?", 32)
STABLEHLO = f"""
func.func public @main(%x: {IN}) -> {OUT} {{
  %w = stablehlo.constant {constant(48, 96)}
  %b = stablehlo.constant {constant(96)}
  %v = stablehlo.constant {constant(96, 32)}
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<96> : tensor<1xi32>
  %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : ({IN}, tensor<48x96xf32>) -> {HIDDEN}
  %d = stablehlo.get_dimension_size %x, dim = 0 : ({IN}) -> tensor<i32>
  %d1 = stablehlo.reshape %d : (tensor<i32>) -> tensor<1xi32>
  %shape = stablehlo.concatenate %d1, %n, dim = 0
      : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %bb = stablehlo.dynamic_broadcast_in_dim %b, %shape, dims = [1]
      : (tensor<96xf32>, tensor<2xi32>) -> {HIDDEN}
  %s = stablehlo.add %p, %bb : {HIDDEN}
  %zb = stablehlo.dynamic_broadcast_in_dim %z, %shape, dims = []
      : (tensor<f32>, tensor<2xi32>) -> {HIDDEN}
  %r = stablehlo.maximum %s, %zb : {HIDDEN}
  %q = stablehlo.dot_general %r, %v, contracting_dims = [1] x [0]
      : ({HIDDEN}, tensor<96x32xf32>) -> {OUT}
  return %q : {OUT}
}}"""
IMAGE, PADDED, FEATURES = (tensor("?", size, size, c) for size, c in ((6, 8), (8, 8), (6, 16)))
OUTS, HEADS = tensor("?", 2, 32), tensor("?", 2, 16)


def of_linalg(source: str, result: str, weights: tuple[int, ...], *lines: str) -> str:
    """A module with constant weights, whose result starts from zeros of a dynamic size."""
    size = f"""
  %w = arith.constant {constant(*weights)}
  %c0 = arith.constant 0 : index
  %d = tensor.dim %x, %c0 : {source}"""
    return function({"x": source}, result, size, zeros("z", result, "%d"), *lines)


CONVOLVED = of_linalg(IMAGE, FEATURES, (3, 3, 8, 16), f"""
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {{
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %zero : f32
  }} : {IMAGE} to {PADDED}""",
    op("r", CONVOLUTION, {"%p": PADDED, "%w": tensor(3, 3, 8, 16)}, "%z", FEATURES))  # fmt: skip
INTERLEAVED = of_linalg(HEADS, OUTS, (2, 16, 32), generic(
    "r", "m h k, h k n -> m h n", {"%x": HEADS, "%w": tensor(2, 16, 32)}, "%z", OUTS,
    *MULTIPLY_ADD))  # fmt: skip


def vtensor(*shape: int | str) -> str:
    """A type of torch."""
    return f"!torch.vtensor<[{','.join(map(str, shape))}],f32>"


X, H, Y = (vtensor("?", "?", size) for size in (48, 96, 32))
TORCH = f"""
func.func @main(%x: {X}) -> {Y} {{
  %s0 = torch.symbolic_int "s0" {{min_val = 2, max_val = 64}} : !torch.int
  %s1 = torch.symbolic_int "s1" {{min_val = 2, max_val = 64}} : !torch.int
  torch.bind_symbolic_shape %x, [%s0, %s1], affine_map<()[s0, s1] -> (s0, s1, 48)> : {X}
  %w = torch.vtensor.literal({constant(96, 48)}) : {vtensor(96, 48)}
  %b = torch.vtensor.literal({constant(96)}) : {vtensor(96)}
  %v = torch.vtensor.literal({constant(32, 96)}) : {vtensor(32, 96)}
  %c = torch.vtensor.literal({constant(32)}) : {vtensor(32)}
  %none = torch.constant.str "none"
  %p = torch.aten.linear %x, %w, %b : {X}, {vtensor(96, 48)}, {vtensor(96)} -> {H}
  %g = torch.aten.gelu %p, %none : {H}, !torch.str -> {H}
  %q = torch.aten.linear %g, %v, %c : {H}, {vtensor(32, 96)}, {vtensor(32)} -> {Y}
  %r = torch.aten.relu %q : {Y} -> {Y}
  return %r : {Y}
}}"""


def in_onnx() -> bytes:
    """A transformer block of two heads; `batch` and `seq` are dynamic."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    node, weights, nodes = onnx.helper.make_node, {}, []
    weights["heads"], weights["whole"] = np.array([0, -1, 2, 16]), np.array([0, -1, 32])

    def linear(source: str, name: str, k: int, n: int) -> str:
        weights[f"{name}w"] = (RANDOM.standard_normal((k, n)) / 8).astype(np.float32)
        weights[f"{name}b"] = RANDOM.standard_normal(n).astype(np.float32)
        nodes.append(node("MatMul", [source, f"{name}w"], [f"{name}m"]))
        nodes.append(node("Add", [f"{name}m", f"{name}b"], [name]))
        return name

    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(node("Reshape", [linear("x", name, 32, 32), "heads"], [f"{name}r"]))
        nodes.append(node("Transpose", [f"{name}r"], [f"{name}t"], perm=order))
    nodes += [
        node("MatMul", ["qt", "kt"], ["scores"]), node("Softmax", ["scores"], ["p"], axis=-1),
        node("MatMul", ["p", "vt"], ["c"]), node("Transpose", ["c"], ["ct"], perm=[0, 2, 1, 3]),
        node("Reshape", ["ct", "whole"], ["context"]),
    ]  # fmt: skip
    nodes.append(node("Add", [linear("context", "o", 32, 32), "x"], ["residual"]))
    nodes.append(node("Relu", [linear("residual", "f", 32, 64)], ["r"]))
    nodes.append(node("Identity", [linear("r", "l", 64, 32)], ["y"]))
    shape = ["batch", "seq", 32]
    source: bytes = model(onnx, nodes, weights, shape, shape, 17).SerializeToString()
    return source


RELU = ",bias,epilogue=relu,weights=constant"
ROWS = "matmul:m=1..32,n={},k={},dtype=f32"
MODELS = {
    "stablehlo": (STABLEHLO, ["0.0=1..32"], (48,), [f"{ROWS.format(96, 48)}{RELU}",
                  f"{ROWS.format(32, 96)},weights=constant"]),
    "padded": (CONVOLVED, ["0.0=1..8"], (6, 6, 8), [
        "conv2d:n=1..8,h=8,w=8,ci=8,co=16,kh=3,kw=3,dtype=f32,weights=constant"]),
    "interleaved": (INTERLEAVED, ["0.0=1..12"], (2, 16), [
        "matmul:batch=2,m=1..12,n=32,k=16,dtype=f32,weights=constant"]),
    "torch": (TORCH, ["0.0=4", "0.1=2..20"], (48,), [
        "matmul:m=8..80:4,n=96,k=48,dtype=f32,bias,weights=constant",
        f"matmul:m=8..80:4,n=32,k=96,dtype=f32{RELU}"]),
    "onnx": ("", ["batch=2", "seq=1..16"], (32,), [
        *["matmul:m=2..32:2,n=32,k=32,dtype=f32,bias,weights=constant"] * 3, "", "",
        "matmul:m=2..32:2,n=32,k=32,dtype=f32,bias,add,weights=constant",
        f"matmul:m=2..32:2,n=64,k=32,dtype=f32{RELU}",
        "matmul:m=2..32:2,n=32,k=64,dtype=f32,bias,weights=constant"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("spelling", "threads"), some([("torch", 2), *((one, 1) for one in MODELS)], all_of=2)
)
def test_a_model_with_a_dynamic_dim_calls_kernels_at_all_sizes(spelling: str, threads: int) -> None:
    """Results agree with IREE's own at both ends, between, and outside of the range."""
    text, dims, last, problems = MODELS[spelling]
    source = text.encode() or in_onnx()
    (sizes, dim), target = parse_dims(dims), resolve(f"cpu:host,threads={threads}")
    assert dim is not None
    module = as_module(source, splits=True, sizes=sizes | dim.at(0))
    cuts = cut_module(module, dim=dim)
    assert [cut.problem for cut in cuts] == problems
    assert all("give seq exact sizes" in cut.reason for cut in cuts if not cut.problem)
    kernels = []
    for problem in dict.fromkeys(filter(None, problems)):
        whole = parse_any(problem)
        assert isinstance(whole, ProblemRange)
        entry = LibraryEntry(whole.smallest, first_schedule(whole, target))
        kernels.append(compiled(entry, target))
    ours = compiled_with(module, text_of(kernels, target, (), patterns_of(cuts)))
    assert len(ours.kernels) == sum(map(bool, problems))
    device = open_device(threads)
    modules = [LoadedModule(code, device) for code in (compile_module(module), ours.code)]
    (entry_name,) = (one for one in modules[0].functions() if "$" not in one and "__" not in one)
    random = np.random.default_rng(1)
    for size in (*dim.tested, dim.outside):
        x = empty_aligned((*sizes.values(), size, *last), np.float32)
        x[...] = random.standard_normal(x.shape)
        (alone,), (made,) = (one.results(entry_name, [(x, "FLOAT_32")]) for one in modules)
        assert alone.shape[:-1] == x.shape[:-1] and np.isfinite(alone).all()
        np.testing.assert_allclose(made, alone, rtol=1e-4, atol=1e-4, err_msg=f"{size}")
