"""Which ATen ops of a graph are problems, and calls of kernels in their place."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._subclasses import FakeTensor

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import Conv2d, Matmul

Node = Any  # torch.fx's own classes are there only where torch is
Order = tuple[int, ...]

aten = torch.ops.aten
TARGETS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default)
_NAMES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}
_TO_ROWS_LAST, _TO_CHANNELS_FIRST, _FILTERS = (0, 2, 3, 1), (0, 3, 1, 2), (2, 3, 1, 0)


@dataclass(frozen=True)
class Candidate:
    """An op with what follows it, as one problem.

    Attributes:
        problem: canonical.
        ops: the op, and those that the kernel computes as well, in their order.
        operands: A, B, and `bias` and `add` where the problem has them.
        orders: permutations of operands from PyTorch's layout to that of the problem.
        shape: of the kernel's result.
        back: permutation of the result to PyTorch's layout.
    """

    problem: str
    ops: tuple[Node, ...]
    operands: Mapping[str, Node]
    shape: tuple[int, ...]
    orders: Mapping[str, Order] = field(default_factory=dict)
    back: Order | None = None


def why_not(node: Node) -> str:
    """Return why no problem describes an op's operands; empty if one may."""
    for one in (node, *node.all_input_nodes):
        value = one.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return "an operand is not a dense tensor"
        if value.device.type != "cpu":
            return f"an operand is on {value.device.type}, not on the cpu"
        if value.dtype not in _NAMES or value.dtype != node.meta["val"].dtype:
            return f"no kernels of {str(value.dtype).removeprefix('torch.')}"
        if not all(isinstance(size, int) for size in (*value.shape, *value.stride())):
            return "a size is dynamic; give dynamic=False"
        if value.numel() == 0:
            return "an operand is empty"
    return ""


def candidates(node: Node) -> list[Candidate]:
    """Return an op as problems, from the one that covers most ops to the op alone."""
    if why_not(node):
        return []
    find = {aten.bmm.default: _batched, aten.convolution.default: _convolutions}
    found: list[Candidate] = []
    with suppress(KernelsError):  # no problem describes it, as for a stride of zero
        found.extend(find.get(node.target, _products)(node))
    return found


def _products(node: Node) -> Iterator[Candidate]:
    *bias, a, b = node.args
    if any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        return
    (m, k), n = _shape(a), _shape(b)[1]
    operands, orders = {"A": a, "B": b}, {}
    if bias:
        if _shape(bias[0]) != (n,):
            return
        operands["bias"] = bias[0]
    is_transposed = _is_transposed(b)
    if is_transposed:
        orders["B"] = (1, 0)
    keys = {"m": m, "n": n, "k": k, "transpose_b": is_transposed, **_common(node, b, bool(bias))}
    for ops, more in _endings((node,)):
        problem = Matmul(**{**keys, **more}).canonical
        yield Candidate(problem, ops, operands, (m, n), orders)


def _batched(node: Node) -> Iterator[Candidate]:
    a, b = node.args
    (batch, m, k), n = _shape(a), _shape(b)[2]
    if batch == 1:
        return
    is_transposed = _is_transposed(b)
    sizes = {"batch": batch, "m": m, "n": n, "k": k, "transpose_b": is_transposed}
    problem = Matmul(**{**sizes, **_common(node, None, False)}).canonical
    orders = {"B": (0, 2, 1)} if is_transposed else {}
    yield Candidate(problem, (node,), {"A": a, "B": b}, (batch, m, n), orders)


def _convolutions(node: Node) -> Iterator[Candidate]:
    a, b, bias, stride, pad, dilation, is_transposed, _, groups = node.args
    if is_transposed or len(_shape(a)) != 4:
        return
    (n, ci, h, w), (co, _, kh, kw), (_, _, oh, ow) = _shape(a), _shape(b), _shape(node)
    moves = {"stride": stride, "pad": pad, "dilation": dilation}
    keys: dict[str, Any] = {"n": n, "h": h, "w": w, "ci": ci, "co": co, "kh": kh, "kw": kw}
    keys |= {key: "x".join(map(str, sizes)) for key, sizes in moves.items()}
    keys |= {"groups": groups, **_common(node, b, bias is not None)}
    operands = {"A": a, "B": b} | ({} if bias is None else {"bias": bias})
    orders = {"A": _TO_ROWS_LAST, "B": _FILTERS, "add": _TO_ROWS_LAST}
    added = _addition(node)
    tries: list[tuple[tuple[Node, ...], dict[str, Node], dict[str, Any]]]
    tries = [((node,), operands, keys)]
    if added is not None:
        total, other = added
        forms = [((node, total), {**operands, "add": other}, form | keys) for form in _added(keys)]
        tries = forms + tries
    for start, given, settings in tries:
        for ops, more in _endings(start):
            problem = Conv2d(**{**settings, **more}).canonical
            yield Candidate(problem, ops, given, (n, oh, ow, co), orders, _TO_CHANNELS_FIRST)


def _added(keys: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return how a residual is added, the form with the faster kernels first.

    Winograd transforms add to what the result holds, into which the residual is copied before.
    """
    if keys["groups"] > 1 or "out" in keys:
        return [{"add": True}]
    forms: list[dict[str, Any]] = [{"init": "accumulate"}, {"add": True}]
    return forms if keys["kh"] * keys["kw"] > 1 else forms[::-1]


def _common(node: Node, weights: Node | None, has_bias: bool) -> dict[str, Any]:
    dtype = _NAMES[node.meta["val"].dtype]
    is_constant = weights is not None and _is_constant(weights)
    keys = {"dtype": dtype, "bias": has_bias, "weights": "constant" if is_constant else "variable"}
    return keys | ({"out": dtype} if dtype in ("bf16", "f16") else {})


def _endings(ops: tuple[Node, ...]) -> Iterator[tuple[tuple[Node, ...], dict[str, str]]]:
    """Yield ops with the epilogue that alone reads their result, then without it."""
    user = _only_user(ops[-1])
    if user is not None and user.target is aten.relu.default:
        yield (*ops, user), {"epilogue": "relu"}
    if user is not None and user.target is aten.clamp_min.default and user.args[1] == 0:
        last = _only_user(user)
        if last is not None and last.target is aten.clamp_max.default and last.args[1] == 6:
            yield (*ops, user, last), {"epilogue": "relu6"}
    yield ops, {}


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _addition(node: Node) -> tuple[Node, Node] | None:
    """Return the addition that alone reads a result, and the other tensor, of the same shape."""
    user = _only_user(node)
    if user is None or user.target is not aten.add.Tensor or user.kwargs or len(user.args) != 2:
        return None
    other = user.args[1] if user.args[0] is node else user.args[0]
    if not isinstance(other, torch.fx.Node) or other is node or _shape(other) != _shape(node):
        return None
    if other.target is aten.convolution.default and node < other and _only_user(other):
        return None  # the sum of two convolutions is part of the later one
    return (user, other) if _value(other).dtype == _value(node).dtype else None


def _is_transposed(b: Node) -> bool:
    """Return whether a variable operand is stored transposed; constants are copied once instead."""
    *_, rows, columns = _value(b).stride()
    return not _is_constant(b) and columns != 1 and rows == 1


def replace(found: Candidate, symbol: str) -> None:
    """Put the call of a kernel in the place of a candidate's ops."""
    last, graph = found.ops[-1], found.ops[-1].graph
    with graph.inserting_before(last):
        given = {}
        for name, node in found.operands.items():
            given[name] = _arranged(node, found.orders.get(name))
        bias = given.get("bias")
        if bias is not None and _value(bias).dtype in (torch.bfloat16, torch.float16):
            given["bias"] = _made(torch.ops.prims.convert_element_type.default, bias, torch.float32)
        if _is_constant(found.operands["B"]):
            given["B"] = _made(torch.ops.tilewise.prepare.default, given["B"], symbol)
        operands = [given.get(name) for name in ("A", "B", "bias", "add")]
        made = _made(torch.ops.tilewise.call.default, *operands, symbol, list(found.shape))
        if found.back is not None:
            made = _made(aten.permute.default, made, list(found.back))
    last.replace_all_uses_with(made)
    for node in reversed(found.ops):
        node.graph.erase_node(node)


def _arranged(node: Node, order: Order | None) -> Node:
    """Return an operand in a problem's layout; Inductor copies variable ones where it must."""
    arranged = node if order is None else _made(aten.permute.default, node, list(order))
    if _is_constant(node) and not _value(arranged).is_contiguous():
        return _made(aten.clone.default, arranged, memory_format=torch.contiguous_format)
    return arranged


def _made(target: Any, *args: Any, **kwargs: Any) -> Node:
    """Return a new node with the shape and strides that later passes read."""
    nodes = [one for one in args if isinstance(one, torch.fx.Node)]
    made = nodes[0].graph.call_function(target, args, kwargs)
    values = [_value(node) for node in nodes]
    mode = detect_fake_mode(values)
    fakes = [one if isinstance(one, FakeTensor) else mode.from_tensor(one) for one in values]
    by_node = dict(zip(nodes, fakes, strict=True))
    with mode:
        given = [by_node[one] if isinstance(one, torch.fx.Node) else one for one in args]
        made.meta["val"] = target(*given, **kwargs)
    return made


def _value(node: Node) -> Any:
    return node.meta["val"]


def _shape(node: Node) -> tuple[int, ...]:
    return tuple(_value(node).shape)


def _is_constant(node: Node) -> bool:
    return bool(node.op == "get_attr")
