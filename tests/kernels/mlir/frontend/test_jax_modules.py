"""Modules that JAX prints: each product is the problem that IREE computes there."""

from functools import partial

import numpy as np
import pytest

from tests.kernels.mlir.frontend.running import results_of
from tests.kernels.mlir.frontend.test_generics import stored
from tilewise.kernels.mlir.frontend.read import as_module, read_module
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
MM, MATRICES = "matmul:m=7,n=9,k=12,dtype=", ((7, 12), (12, 9))
BATCH = "matmul:batch=3,m=7,n=9,k=12,dtype=f16,transpose_b,out=f16"
CONV = "conv2d:n=1,h=9,w=8,ci=4,co=6,kh=3,kw=3,stride=2,pad=1x0x1x1,dtype="
IMAGE = ((1, 9, 8, 4), (3, 3, 4, 6))
DEPTHWISE = "conv2d:n=1,h=6,w=6,ci=4,co=4,kh=3,kw=3,pad=1,groups=4,dtype=bf16,out=bf16"


def test_products_are_what_iree_computes() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    export, nn = pytest.importorskip("jax.export").export, jax.nn
    layout = {"padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    convolve = partial(jax.lax.conv_general_dilated, **layout)

    def half(of, kind="bfloat16"):
        return lambda x, w, b: of(x.astype(kind), w.astype(kind)).astype("float32")

    conv = partial(convolve, window_strides=(2, 2))
    depthwise = partial(convolve, window_strides=(1, 1), feature_group_count=4)
    forms = [
        (f"{MM}bf16,out=bf16", MATRICES, half(lambda x, w: x @ w)),
        (f"{MM}bf16,out=bf16,epilogue=relu", MATRICES, half(lambda x, w: nn.relu(x @ w))),
        (BATCH, ((3, 7, 12), (3, 9, 12)), half(lambda q, k: q @ k.swapaxes(1, 2), "float16")),
        (f"{CONV}bf16,out=bf16", IMAGE, half(conv)),
        (f"{CONV}f32,epilogue=silu", IMAGE, lambda x, w, b: nn.silu(conv(x, w))),
        (f"{MM}f32,bias,epilogue=gelu_tanh", MATRICES, lambda x, w, b: nn.gelu(x @ w + b)),
        (f"{MM}f32,bias,epilogue=gelu", MATRICES, lambda x, w, b: nn.gelu(x @ w + b, False)),
        (f"{MM}f32,add,epilogue=relu", MATRICES, lambda x, w, b: nn.relu(x[:, 3:] + x @ w)),
        (DEPTHWISE, ((1, 6, 6, 4), (3, 3, 1, 4)), half(depthwise)),
        (f"{MM}f32", MATRICES, lambda x, w, b: nn.silu(y := x @ w) + y),
    ]
    rng, calls = np.random.default_rng(50), [form for *_, form in forms]
    given = [[(rng.integers(-16, 17, shape) / 16).astype(np.float32) for shape in (*shapes, (9,))]
             for _, shapes, _ in forms]  # fmt: skip
    whole = jax.jit(lambda given: [call(*one) for call, one in zip(calls, given, strict=True)],
                    keep_unused=True)  # fmt: skip
    text = str(whole.lower(given).compiler_ir("stablehlo")).encode()
    for module in (text, export(whole)(given).mlir_module_serialized):
        found = [parse_problem(one.problem) for one in read_module(module).occurrences]
        assert found == [parse_problem(one) for one, *_ in forms]
    results = results_of(as_module(text), *(array for one in given for array in one))
    for problem, (a, b, bias), result in zip(found[:-1], given, results, strict=False):
        operands = {"A": stored(a, problem.dtype), "B": stored(b, problem.dtype)}
        operands |= {one: bias if one == "bias" else a[:, 3:] for one in problem.extras}
        deviation, allowed = compare(problem, result, reference(problem, operands))
        assert deviation <= allowed, problem
