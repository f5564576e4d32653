"""Attention in each spelling: both products are problems, and the numbers are the definition's."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.cases import some
from tests.kernels.mlir.frontend.running import random_arrays, results_of
from tests.kernels.mlir.payloads import generic
from tilewise.kernels.errors import ModuleError
from tilewise.kernels.mlir.frontend.read import as_module, read_module, read_outline

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

Array = NDArray[Any]
SCORES = "matmul:batch=4,m=6,n=10,k=8,dtype=f32"
VALUES = "matmul:batch=4,m=6,n=8,k=10,dtype=f32"
Q, K, V, FEWER = (1, 4, 6, 8), (1, 4, 10, 8), (1, 4, 10, 8), (1, 2, 10, 8)
MASK = (6, 10)
SCALE = 0.3
MAPS = ("(b,m,n,k,s) -> (b,m,k)", "(b,m,n,k,s) -> (b,s,k)", "(b,m,n,k,s) -> (b,s,n)",
        "(b,m,n,k,s) -> ()", "(b,m,n,k,s) -> (b,m,n)")  # fmt: skip
HALF, ALL = "%r = arith.mulf %a, %half : {}", "[d0, d1, d2]"


def in_torch(
    keys: Sequence[int] = K, mask: str = "", *, causal: bool = False, scale: float | None = None,
    dropout: float = 0.0, name: str = "scaled_dot_product_attention", used: int = 0,
) -> bytes:  # fmt: skip
    """Write one op of torch on arguments, with a mask of an element type."""
    q, k = (f"!torch.vtensor<[{','.join(map(str, one))}],f32>" for one in (Q, keys))
    m = f"!torch.vtensor<[6,10],{mask}>" if mask else "!torch.none"
    argument = f", %m: {m}" if mask else ""
    s, is_flash = ("!torch.none" if scale is None else "!torch.float"), "flash" in name
    first = f"{q}, {k}, {k}, "
    if is_flash:
        operands = "%p, %causal, " + ("%m, %s" if mask else "%none, %s")
        kinds = f"{first}!torch.float, !torch.bool, {m}, {s}"
        op = f'%0:2 = torch.operator "torch.aten.{name}"(%q, %k, %v, {operands}) : ({kinds})' \
             f" -> ({q}, !torch.vtensor<[1,4,6],f32>)"  # fmt: skip
    else:
        operands = ("%m" if mask else "%none") + ", %p, %causal, %s, %causal"
        kinds = f"{first}{m}, !torch.float, !torch.bool, {s}, !torch.bool"
        op = f"%0 = torch.aten.{name} %q, %k, %v, {operands} : {kinds} -> {q}"
    result = "!torch.vtensor<[1,4,6],f32>" if used else q
    number = "torch.constant.none" if scale is None else f"torch.constant.float {scale:e}"
    return f"""
func.func @main(%q: {q}, %k: {k}, %v: {k}{argument}) -> {result} {{
  %none = torch.constant.none
  %p = torch.constant.float {dropout:e}
  %causal = torch.constant.bool {str(causal).lower()}
  %s = {number}
  {op}
  return %0{f"#{used}" if is_flash else ""} : {result}
}}""".encode()


FLASH = "_scaled_dot_product_flash_attention_for_cpu"


def in_iree(dtype: str = "f32") -> bytes:
    """Write an op of IREE on half of the queries, in a tensor that was zeros."""
    q, k = f"tensor<4x6x8x{dtype}>", f"tensor<4x10x8x{dtype}>"
    maps = ", ".join(f"affine_map<{one}>" for one in MAPS)
    return f"""
func.func @main(%q: {q}, %k: {k}, %v: {k}) -> {q} {{
  %s = arith.constant {SCALE} : f32
  %e = tensor.empty() : {q}
  %half = arith.constant 0.5 : {dtype}
  %zeros = arith.constant dense<0.0> : {q}
  {generic("h", (4, 6, 8), [f"%q{ALL}"], f"%zeros{ALL}", HALF.format(dtype), element=dtype)}
  %0 = iree_linalg_ext.attention <indexing_maps = [{maps}]>
      ins(%h, %k, %v, %s : {q}, {k}, {k}, f32) outs(%e : {q}) {{
  ^bb0(%x: f32):
    iree_linalg_ext.yield %x : f32
  }} -> {q}
  return %0 : {q}
}}""".encode()


def in_onnx(
    shapes: Mapping[str, Sequence[int]], result: Sequence[int] = Q, mask: int = 1, outputs: int = 1,
    **attributes: Any,
) -> bytes:  # fmt: skip
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    make = onnx.helper
    types = [make.make_tensor_value_info(name, mask if name == "mask" else 1, shape)
             for name, shape in shapes.items()]  # fmt: skip
    inputs = list(shapes)
    if "past_k" in inputs and "mask" not in inputs:
        inputs.insert(3, "")
    made = ["y", "", "", "scores"][:outputs]
    node = make.make_node("Attention", inputs, made, **attributes)
    results = [make.make_tensor_value_info("y", 1, result)]
    if outputs > 1:
        results.append(make.make_tensor_value_info("scores", 1, [1, 4, 6, 10]))
    graph = make.make_graph([node], "main", types, results)
    sets = [make.make_opsetid("", 25 if "left_window_size" in attributes else 23)]
    return bytes(make.make_model(graph, opset_imports=sets, ir_version=10).SerializeToString())


HEADS: dict[str, Sequence[int]] = {"q": Q, "k": K, "v": V}
FLAT = {"q": (1, 6, 32), "k": (1, 10, 32), "v": (1, 10, 32)}
GROUPS = {"q": Q, "k": FEWER, "v": FEWER}
PAST = {"q": Q, "k": Q, "v": Q, "past_k": (1, 4, 4, 8), "past_v": (1, 4, 4, 8)}
Make = Callable[[], bytes]
SPELLINGS: dict[str, tuple[Make, Mapping[str, Sequence[int]], dict[str, Any]]] = {
    "torch": (in_torch, HEADS, {}),
    "torch, causal": (lambda: in_torch(causal=True), HEADS, {"causal": True}),
    "torch, mask and scale": (
        lambda: in_torch(mask="f32", scale=SCALE), {**HEADS, "mask": MASK}, {"scale": SCALE}
    ),
    "torch, groups": (lambda: in_torch(FEWER), GROUPS, {}),
    "torch, flash": (lambda: in_torch(name=FLASH, causal=True), HEADS, {"causal": True}),
    "torch, flash with a mask": (
        lambda: in_torch(name=FLASH, mask="f32"), {**HEADS, "mask": MASK}, {}
    ),
    "onnx": (lambda: in_onnx(HEADS), HEADS, {}),
    "onnx, causal, scale and softcap": (
        lambda: in_onnx(HEADS, is_causal=1, scale=SCALE, softcap=2.0), HEADS,
        {"causal": True, "scale": SCALE, "softcap": 2.0},
    ),
    "onnx, mask": (lambda: in_onnx({**HEADS, "mask": MASK}), {**HEADS, "mask": MASK}, {}),
    "onnx, groups": (lambda: in_onnx(GROUPS), GROUPS, {}),
    "onnx, three axes": (
        lambda: in_onnx(FLAT, (1, 6, 32), q_num_heads=4, kv_num_heads=4), FLAT, {}
    ),
    "onnx, past": (lambda: in_onnx(PAST, is_causal=1), PAST, {"causal": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", SPELLINGS)
def test_both_products_are_problems(name: str) -> None:
    found = read_module(SPELLINGS[name][0]())
    assert [one.problem for one in found.occurrences] == [SCORES, VALUES]
    assert not found.skipped
    assert len({one.where.rpartition(" ")[0] for one in found.occurrences}) == 1


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_both_products_of_an_op_of_iree_are_problems(dtype: str) -> None:
    found = read_module(in_iree(dtype)).occurrences
    expected = [one.replace("f32", dtype) for one in (f"{SCORES},transpose_b", VALUES)]
    assert [one.problem for one in found] == expected


def defined(
    arrays: dict[str, Array], *, causal: bool = False, scale: float | None = None,
    softcap: float = 0.0,
) -> Array:  # fmt: skip
    """Return attention in f64 by its definition, zeros for rows that see no key."""
    q, k, v = (arrays[name].astype(np.float64) for name in "qkv")
    is_flat = q.ndim == 3
    if is_flat:
        q, k, v = (one.reshape(*one.shape[:2], 4, -1).swapaxes(1, 2) for one in (q, k, v))
    past = 0
    if "past_k" in arrays:
        past = arrays["past_k"].shape[2]
        k, v = (np.concatenate([arrays[f"past_{n}"], x], 2) for n, x in (("k", k), ("v", v)))
    k, v = (np.repeat(one, q.shape[1] // one.shape[1], 1) for one in (k, v))
    scores = q @ k.swapaxes(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if causal:
        scores[..., ~np.tri(*scores.shape[-2:], past, dtype=bool)] = -np.inf
    scores = scores + arrays.get("mask", 0.0)
    weights = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), -1e30))
    sums = weights.sum(-1, keepdims=True)
    made = weights / np.where(sums == 0, 1, sums) @ v
    return made.swapaxes(1, 2).reshape(1, made.shape[2], -1) if is_flat else made


@pytest.mark.parametrize("name", some(["iree", *SPELLINGS], of=4))
def test_networks_run_every_part_and_numbers_are_those_of_the_definition(name: str) -> None:
    in_ours = in_iree, {n: one[1:] for n, one in HEADS.items()}, {"scale": SCALE / 2}
    make, shapes, how = SPELLINGS.get(name, in_ours)
    arrays = random_arrays(shapes, 11)
    if "mask" in arrays:
        arrays["mask"][3] = -np.inf
        arrays["mask"][5, 7:] = -np.inf
    module = as_module(make())
    outline = read_outline(module)
    refused = [one.refused for one in (outline, *outline.actions) if one.refused]
    assert not refused or "past" in name
    (found,) = results_of(module, *arrays.values())
    whole = arrays if name != "iree" else {n: one[None] for n, one in arrays.items()}
    expected = defined(whole, **how).reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_what_is_seen_may_be_a_mask_of_truth_values() -> None:
    for module in (in_torch(mask="i1"), in_onnx({**HEADS, "mask": MASK}, mask=9)):
        assert [one.problem for one in read_module(module).occurrences] == [SCORES, VALUES]


REFUSED = {
    "drops weights at random": lambda: in_torch(dropout=0.1),
    "gives scores or their sums as result 2": lambda: in_torch(name=FLASH, used=1),
    "has queries of 1x4 heads, keys and values of 1x3": lambda: in_torch((1, 3, 10, 8)),
    "gives scores or their sums as result 4": lambda: in_onnx(HEADS, outputs=4),
    "has a sliding window": lambda: in_onnx(HEADS, left_window_size=2),
    "has softmax_precision=11": lambda: in_onnx(HEADS, softmax_precision=11),
    "has 3 axes; give q_num_heads": lambda: in_onnx(FLAT, (1, 6, 32)),
    "has a mask of 1 keys": lambda: in_onnx({**HEADS, "mask": (6, 1)}),
    "has a mask of si32": lambda: in_torch(mask="si32"),
    "has dynamic shapes": lambda: in_torch().replace(b"[1,4,10,8]", b"[1,4,?,8]"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_refusal_says_which_op_and_why(reason: str) -> None:
    with pytest.raises(ModuleError, match=rf"ttention\S* at @main.* {re.escape(reason)}"):
        read_module(REFUSED[reason]())


def test_modules_without_attention_stay_as_they_are() -> None:
    module = b"func.func @scaled_dot_product() { return }"
    assert as_module(b"func.func @f() { return }") == b"func.func @f() { return }"
    assert as_module(module) == module
