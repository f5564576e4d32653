"""Ops of a model with a dynamic dim call kernels of ranges, in each frontend's form of them."""

import numpy as np
import pytest

from tests.kernels.dispatches.test_ranges import first_schedule
from tests.kernels.mlir.frontend.test_onnx import model
from tilewise.kernels.dispatches.compilation import compiled_with
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.library import text_of
from tilewise.kernels.mlir.frontend.dims import parse_dims
from tilewise.kernels.mlir.frontend.read import as_module
from tilewise.kernels.mlir.iree.compiler import compile_module
from tilewise.kernels.mlir.iree.runtime import LoadedModule, open_device
from tilewise.kernels.oracle.operands import empty_aligned
from tilewise.kernels.problem import ProblemRange, parse_any
from tilewise.kernels.target import resolve

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")

RANDOM = np.random.default_rng(0)


def constant(*shape: int) -> str:
    """A constant attribute of random values."""
    values = RANDOM.standard_normal(shape).astype(np.float32) / 8
    return f'dense<"0x{values.tobytes().hex()}"> : tensor<{"x".join(map(str, shape))}xf32>'


IN, HIDDEN, OUT = "tensor<?x48xf32>", "tensor<?x96xf32>", "tensor<?x32xf32>"
LINALG = f"""
#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d1)>
func.func @main(%x: {IN}) -> {OUT} {{
  %w = arith.constant {constant(48, 96)}
  %b = arith.constant {constant(96)}
  %v = arith.constant {constant(96, 32)}
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %d = tensor.dim %x, %c0 : {IN}
  %e = tensor.empty(%d) : {HIDDEN}
  %f = linalg.fill ins(%z : f32) outs(%e : {HIDDEN}) -> {HIDDEN}
  %p = linalg.matmul ins(%x, %w : {IN}, tensor<48x96xf32>) outs(%f : {HIDDEN}) -> {HIDDEN}
  %r = linalg.generic {{indexing_maps = [#id, #row, #id],
      iterator_types = ["parallel", "parallel"]}}
      ins(%p, %b : {HIDDEN}, tensor<96xf32>) outs(%e : {HIDDEN}) {{
  ^bb0(%i: f32, %j: f32, %o: f32):
    %s = arith.addf %i, %j : f32
    %m = arith.maximumf %s, %z : f32
    linalg.yield %m : f32
  }} -> {HIDDEN}
  %e2 = tensor.empty(%d) : {OUT}
  %f2 = linalg.fill ins(%z : f32) outs(%e2 : {OUT}) -> {OUT}
  %q = linalg.matmul ins(%r, %v : {HIDDEN}, tensor<96x32xf32>) outs(%f2 : {OUT}) -> {OUT}
  return %q : {OUT}
}}"""
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
IMAGE, PADDED, FEATURES = (f"tensor<?x{size}x{size}x{c}xf32>"
                           for size, c in ((6, 8), (8, 8), (6, 16)))  # fmt: skip
CONVOLUTION = f"""
func.func @main(%x: {IMAGE}) -> {FEATURES} {{
  %w = arith.constant {constant(3, 3, 8, 16)}
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {{
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %z : f32
  }} : {IMAGE} to {PADDED}
  %d = tensor.dim %x, %c0 : {IMAGE}
  %e = tensor.empty(%d) : {FEATURES}
  %f = linalg.fill ins(%z : f32) outs(%e : {FEATURES}) -> {FEATURES}
  %r = linalg.conv_2d_nhwc_hwcf {{dilations = dense<1> : tensor<2xi64>,
      strides = dense<1> : tensor<2xi64>}} ins(%p, %w : {PADDED}, tensor<3x3x8x16xf32>)
      outs(%f : {FEATURES}) -> {FEATURES}
  return %r : {FEATURES}
}}"""
HEADS, OUTS = "tensor<?x2x16xf32>", "tensor<?x2x32xf32>"
INTERLEAVED = f"""
func.func @main(%x: {HEADS}) -> {OUTS} {{
  %w = arith.constant {constant(2, 16, 32)}
  %c0 = arith.constant 0 : index
  %z = arith.constant 0.0 : f32
  %d = tensor.dim %x, %c0 : {HEADS}
  %e = tensor.empty(%d) : {OUTS}
  %f = linalg.fill ins(%z : f32) outs(%e : {OUTS}) -> {OUTS}
  %r = linalg.generic {{indexing_maps = [affine_map<(h, m, n, k) -> (m, h, k)>,
      affine_map<(h, m, n, k) -> (h, k, n)>, affine_map<(h, m, n, k) -> (m, h, n)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}}
      ins(%x, %w : {HEADS}, tensor<2x16x32xf32>) outs(%f : {OUTS}) {{
  ^bb0(%a: f32, %b: f32, %o: f32):
    %p = arith.mulf %a, %b : f32
    %s = arith.addf %o, %p : f32
    linalg.yield %s : f32
  }} -> {OUTS}
  return %r : {OUTS}
}}"""


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
CASES = {
    "linalg": (LINALG, ["0.0=1..32"], (48,), [f"{ROWS.format(96, 48)}{RELU}",
               f"{ROWS.format(32, 96)},weights=constant"]),
    "stablehlo": (STABLEHLO, ["0.0=1..32"], (48,), [f"{ROWS.format(96, 48)}{RELU}",
                  f"{ROWS.format(32, 96)},weights=constant"]),
    "padded": (CONVOLUTION, ["0.0=1..8"], (6, 6, 8), [
        "conv2d:n=1..8,h=8,w=8,ci=8,co=16,kh=3,kw=3,dtype=f32,weights=constant"]),
    "interleaved": (INTERLEAVED, ["0.0=1..12"], (2, 16), [
        "matmul:batch=2,m=1..12,n=32,k=16,dtype=f32,weights=constant"]),
    "torch": (TORCH, ["0.0=4", "0.1=2..20"], (48,), [
        "matmul:m=8..80:4,n=96,k=48,dtype=f32,bias,weights=constant",
        f"matmul:m=8..80:4,n=32,k=96,dtype=f32{RELU}"]),
    "onnx": ("", ["batch=2", "seq=1..16"], (32,), [
        *["matmul:m=2..32:2,n=32,k=32,dtype=f32,bias,weights=constant"] * 3, "", "",
        "matmul:m=2..32:2,n=32,k=32,dtype=f32,bias,weights=constant",
        f"matmul:m=2..32:2,n=64,k=32,dtype=f32{RELU}",
        "matmul:m=2..32:2,n=32,k=64,dtype=f32,bias,weights=constant"]),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("spelling", "threads"), [*((one, 1) for one in CASES), ("torch", 2)])
def test_a_model_with_a_dynamic_dim_calls_kernels_at_all_sizes(spelling: str, threads: int) -> None:
    """Results agree with IREE's own at both ends, between, and outside of the range."""
    text, dims, last, problems = CASES[spelling]
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
