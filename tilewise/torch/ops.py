"""Which ATen ops of a graph are problems, and calls of kernels in their place."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._prims_common import is_contiguous_or_false
from torch._subclasses import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.problem import EPILOGUES, Conv2d, Matmul, ProblemRange, parse_any
from tilewise.kernels.problem.ranges import MOST_SIZES
from tilewise.linked.kernels import Kernel, Source

Node = Any  # torch.fx's own classes are there only where torch is
Order = tuple[int, ...]

aten = torch.ops.aten
TARGETS = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default)
_NAMES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16", torch.float16: "f16"}
_CONVERT = torch.ops.prims.convert_element_type.default
_RESHAPE = aten.reshape.default
_MATMUL = torch.backends.mkldnn.matmul
_POINTWISE = {
    aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.neg.default,
    aten.pow.Tensor_Scalar, aten.reciprocal.default, aten.exp.default, aten.erf.default,
    aten.tanh.default, aten.sigmoid.default, aten.relu.default, aten.clamp_min.default,
    aten.clamp_max.default, aten.clamp.default,
}  # fmt: skip
_MOST_OPS = 16
_TO_ROWS_LAST, _TO_CHANNELS_FIRST, _FILTERS = (0, 2, 3, 1), (0, 3, 1, 2), (2, 3, 1, 0)


@dataclass(frozen=True)
class Candidate:
    """An op with what follows it, as one problem.

    Attributes:
        problem: canonical; a range where sizes are dynamic.
        ops: the op, and those that the kernel computes as well, in their order.
        keys: of the problem; those of dynamic sizes are `SymInt`.
        operands: A, B, and `bias` and `add` where the problem has them.
        orders: permutations of operands from PyTorch's layout to that of the problem.
        shape: of the kernel's result.
        back: permutation of the result to PyTorch's layout.
    """

    problem: str
    ops: tuple[Node, ...]
    keys: Mapping[str, Any]
    operands: Mapping[str, Node]
    shape: tuple[Any, ...]
    orders: Mapping[str, Order] = field(default_factory=dict)
    back: Order | None = None


_Ops = tuple[Node, ...]
_Start = tuple[_Ops, Mapping[str, Node], dict[str, Any]]


def why_not(node: Node) -> str:
    """Return why no problem describes an op's operands; empty if one may."""
    of = torch.backends.mkldnn.conv if node.target is aten.convolution.default else _MATMUL
    is_less = of.fp32_precision == "bf16" and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    if is_less and node.meta["val"].dtype is torch.float32:
        return "PyTorch computes f32 in bf16"
    for one in (node, *node.all_input_nodes):
        value = one.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return "an operand is not a dense tensor"
        if value.device.type != "cpu":
            return f"an operand is on {value.device.type}, not on the cpu"
        if value.dtype not in _NAMES or value.dtype != node.meta["val"].dtype:
            return f"no kernels of {str(value.dtype).removeprefix('torch.')}"
        if not all(size.node.has_hint() for size in value.shape if isinstance(size, torch.SymInt)):
            return "a size depends on data"
        if statically_known_true(value.numel() == 0):
            return "an operand is empty"
    return ""


def candidates(node: Node, source: Source, *, may_guard: bool) -> list[Candidate]:
    """Return an op as problems, from the one that covers most ops to the op alone.

    A dynamic size has all its values, and if guards may be added also the present one alone.
    """
    find = _convolution if node.target is aten.convolution.default else _product
    if why_not(node) or (plain := find(node)) is None:
        return []
    keys, accuracy = dict(plain.keys), source.accuracy
    if keys["dtype"] == "f32" or (keys["dtype"] == "f64" and accuracy == "strict"):
        keys["accuracy"] = accuracy  # the others have direct kernels alone
    found = []
    alone: _Start = (plain.ops, plain.operands, {})
    for ops, operands, added in (*_residuals(plain), alone):
        for every, more in _endings(ops, reshapes=plain.back is None):
            found += [
                replace(plain, problem=problem, ops=every, operands=operands)
                for problem in _problems({**keys, **added, **more}, source.sizes, may_guard)
            ]
    return found


def _problems(keys: Mapping[str, Any], sizes: tuple[int, int], may_guard: bool) -> list[str]:
    """Return a problem, or of dynamic sizes the range of all and that of the present ones."""
    dims = [key for key, one in keys.items() if isinstance(one, torch.SymInt)]
    every = [{key: _bounds(keys[key], sizes) for key in dims}]
    if may_guard and dims:
        steps = {key: (keys[key].node.hint, _step(keys[key])) for key in dims}
        every.append({key: f"{one}..{one + step}:{step}" for key, (one, step) in steps.items()})
    found = []
    for ranges in every:
        with suppress(KernelsError):  # no problem describes it, as for a stride of zero
            kind = Conv2d if "kh" in keys else Matmul
            one = kind(**(dict(keys) | dict.fromkeys(ranges, 2)))
            found.append(parse_any({"op": kind.op, **one.to_json(), **ranges}).canonical)
    return found


def _step(size: Any) -> int:
    """Return a number that all values of a size are multiples of, such as tokens of a sequence."""
    factor, _ = size.node.expr.as_coeff_Mul()
    return int(factor) if factor.is_Integer else 1


def _bounds(size: Any, sizes: tuple[int, int]) -> str:
    """Return all values of a size; `sizes` are those of a dim of an input without bounds."""
    ends = {}
    for symbol in size.node.expr.free_symbols:
        bounds = size.node.shape_env.bound_sympy(symbol)
        # Size 1 is compiled by itself, but a kernel serves it as well.
        low = 1 if bounds.lower <= 2 else int(bounds.lower)
        is_bounded = bounds.upper < sys.maxsize - 1
        high = int(bounds.upper) if is_bounded else max(sizes[1], low)
        ends[symbol] = ValueRanges(low if is_bounded else max(low, sizes[0]), high)
    found, step = bound_sympy(size.node.expr, ends), _step(size)
    last = min(int(found.upper), int(found.lower) + (MOST_SIZES - 1) * step)
    return f"{found.lower}..{last}:{step}"


def fits(found: Candidate, kernel: Kernel, *, may_guard: bool) -> bool:
    """Return whether a kernel has all sizes of an op.

    If guards may be added, the graph gets those of the present sizes: that all are in the kernel's
    range, or that they are not. PyTorch compiles another graph for the others.
    """
    wanted = kernel.wanted
    if not isinstance(wanted, ProblemRange):
        return True
    known = bool if may_guard else statically_known_true
    sizes = zip(kernel.sizes_of(found.keys), wanted.ranges, strict=True)
    return all(
        known(size >= values[0]) and known(size <= values[-1]) and known(size % values.step == 0)
        for size, values in sizes
    )


def _product(node: Node) -> Candidate | None:
    *bias, a, b = node.args
    (*batch, m, k), n = _shape(a), _shape(b)[-1]
    if any(node.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        return None
    if batch and statically_known_true(batch[0] == 1):
        return None
    operands = {"A": a, "B": b}
    if bias:
        shapes = {"bias": (n,), "add": (m, n)}
        named = [name for name, one in shapes.items() if _is_same(_shape(bias[0]), one)]
        if not named:
            return None
        operands[named[0]] = bias[0]
    is_transposed = _is_transposed(b)
    keys = {"batch": batch[0] if batch else 1, "m": m, "n": n, "k": k, "transpose_b": is_transposed}
    keys |= _common(node, None if batch else b, operands)
    orders = {"B": (0, 2, 1) if batch else (1, 0)} if is_transposed else {}
    if batch and not all(_is_in_order(one, orders.get(name)) for name, one in operands.items()):
        return None  # heads of attention, which PyTorch's op reads where they are
    return Candidate("", (node,), keys, operands, (*batch, m, n), orders)


def _convolution(node: Node) -> Candidate | None:
    a, b, bias, stride, pad, dilation, is_transposed, _, groups = node.args
    if is_transposed or len(_shape(a)) != 4:
        return None
    (n, ci, h, w), (co, _, kh, kw), (_, _, oh, ow) = _shape(a), _shape(b), _shape(node)
    moves = {"stride": stride, "pad": pad, "dilation": dilation}
    keys: dict[str, Any] = {"n": n, "h": h, "w": w, "ci": ci, "co": co, "kh": kh, "kw": kw}
    keys |= {key: "x".join(map(str, sizes)) for key, sizes in moves.items()}
    operands = {"A": a, "B": b} | ({} if bias is None else {"bias": bias})
    keys |= {"groups": groups, **_common(node, b, operands)}
    orders = {"A": _TO_ROWS_LAST, "B": _FILTERS, "add": _TO_ROWS_LAST}
    return Candidate("", (node,), keys, operands, (n, oh, ow, co), orders, _TO_CHANNELS_FIRST)


def _residuals(plain: Candidate) -> Iterator[_Start]:
    """Yield an op with the residual that is added to it, the form with the faster kernels first.

    Winograd transforms add to what the result holds, into which the residual is copied before.
    """
    keys, added = plain.keys, _addition(plain.ops[0], reshapes=plain.back is None)
    if added is None or "add" in plain.operands or plain.ops[0].target is aten.bmm.default:
        return
    ops, other = added
    forms: list[dict[str, Any]] = [{"add": True}]
    if keys.get("groups", 1) == 1 and "out" not in keys:
        forms.append({"init": "accumulate"})
    if keys.get("kh", 1) * keys.get("kw", 1) > 1:
        forms.reverse()
    for form in forms:
        yield ops, {**plain.operands, "add": other}, form


def _common(node: Node, weights: Node | None, operands: Mapping[str, Node]) -> dict[str, Any]:
    dtype = _NAMES[node.meta["val"].dtype]
    is_constant = weights is not None and weights.op == "get_attr"
    keys: dict[str, Any] = {name: name in operands for name in ("bias", "add")}
    keys |= {"dtype": dtype, "weights": "constant" if is_constant else "variable"}
    return keys | ({"out": dtype} if dtype in ("bf16", "f16") else {})


def _endings(ops: _Ops, *, reshapes: bool) -> list[tuple[_Ops, dict[str, str]]]:
    """Return ops with the epilogue that alone reads their result, most ops first, then without.

    Any spelling of an epilogue is found, since the ops are evaluated at points of the real line.
    """
    start = ops[-1]
    found: list[tuple[_Ops, dict[str, str]]] = [(ops, {})]
    with _disable_current_modes():
        powers = 2.0 ** torch.arange(-20, 99, dtype=torch.float64)
        points = torch.cat([torch.linspace(-8, 8, 97, dtype=torch.float64), powers, -powers])
        values = {start: points}
        while len(values) < _MOST_OPS:
            users = {user for one in values for user in one.users} - values.keys()
            ready = [one for one in users if _is_function(one, start, reshapes=reshapes)]
            ready = [one for one in ready if values.keys() >= set(_tensors(one))]
            if not ready:
                break
            last = min(ready)
            if last.target in _POINTWISE:
                given = [values.get(one, one) for one in last.args]
                values[last] = last.target(*given, **last.kwargs)
            else:
                values[last] = values[last.args[0]]
            inner = {user for one in values if one is not last for user in one.users}
            is_end = inner <= values.keys() and _value(last).dtype == _value(start).dtype
            if is_end and (name := _epilogue(points, values[last])):
                found.append(((*ops, *list(values)[1:]), {"epilogue": name}))
    return found[::-1]


def _epilogue(points: Any, values: Any) -> str:
    """Return the epilogue that has these values; empty if none has."""
    for name, one in EPILOGUES.items():
        expected = torch.from_numpy(one.apply(points.numpy()))
        near = 1e-6 if one.is_smooth else 0.0  # a small constant is not zero
        if name != "none" and torch.allclose(values, expected, near, near * 1e-6):
            return name
    return ""


def _is_function(node: Node, of: Node, *, reshapes: bool) -> bool:
    """Return whether each element of a result depends on the same element of another alone."""
    kinds = _POINTWISE | {_CONVERT} | ({_RESHAPE} if reshapes else set())
    if node.target not in kinds or not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    if node.target in _POINTWISE and len(_tensors(node)) < len(node.all_input_nodes):
        return False  # of a size, too
    wide = (_value(of).dtype, torch.float32, torch.float64)
    is_same = statically_known_true(_value(node).numel() == _value(of).numel())
    return is_same and _value(node).dtype in wide


def _tensors(node: Node) -> list[Node]:
    """Return the tensors that an op reads; sizes are other inputs."""
    return [one for one in node.all_input_nodes if isinstance(one.meta.get("val"), torch.Tensor)]


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _addition(node: Node, *, reshapes: bool) -> tuple[_Ops, Node] | None:
    """Return the ops up to the addition that alone reads a result, and the other tensor."""
    ops: _Ops = (node,)
    while reshapes and (last := _only_user(ops[-1])) is not None and last.target is _RESHAPE:
        ops = (*ops, last)
    user, total = _only_user(ops[-1]), ops[-1]
    if user is None or user.target is not aten.add.Tensor or user.kwargs or len(user.args) != 2:
        return None
    other = user.args[1] if user.args[0] is total else user.args[0]
    is_other = isinstance(other, torch.fx.Node) and other is not total
    if not (is_other and _is_same(_shape(other), _shape(total))):
        return None
    source = other
    while reshapes and source.target is _RESHAPE:
        source = source.args[0]
    if source.target in TARGETS and node < source and _only_user(other) and _only_user(source):
        return None  # the sum of two results is part of the later one
    return ((*ops, user), other) if _value(other).dtype == _value(node).dtype else None


def _is_in_order(node: Node, order: Order | None) -> bool:
    """Return whether an operand is read without a copy at each call."""
    value = _value(node) if order is None else _value(node).permute(order)
    return node.op == "get_attr" or bool(is_contiguous_or_false(value))


def _is_transposed(b: Node) -> bool:
    """Return whether a variable operand is stored transposed; constants are copied once instead."""
    *_, rows, columns = _value(b).stride()
    is_row = statically_known_true(rows == 1) and not statically_known_true(columns == 1)
    return is_row and b.op != "get_attr"


def replace_ops(found: Candidate, kernel: Kernel) -> None:
    """Put the call of a kernel in the place of a candidate's ops."""
    last, graph = found.ops[-1], found.ops[-1].graph
    with graph.inserting_before(last):
        orders = found.orders
        given = {name: _arranged(one, orders.get(name)) for name, one in found.operands.items()}
        bias = given.get("bias")
        if bias is not None and _value(bias).dtype in (torch.bfloat16, torch.float16):
            given["bias"] = _made(_CONVERT, bias, torch.float32)
        if found.keys["weights"] == "constant":
            given["B"] = _made(torch.ops.tilewise.prepare.default, given["B"], kernel.name)
        if "add" in given:
            given["add"] = _shaped(given["add"], found.shape)
        operands = [given.get(name) for name in ("A", "B", "bias", "add")]
        sizes = kernel.sizes_of(found.keys)
        more = [list(found.shape), sizes] if sizes else []
        made = _made(torch.ops.tilewise.call.default, *operands, kernel.name, *more)
        if found.back is not None:
            made = _made(aten.permute.default, made, list(found.back))
        made = _shaped(made, _shape(last))
    last.replace_all_uses_with(made)
    for node in reversed(found.ops):
        node.graph.erase_node(node)


def _shaped(node: Node, shape: tuple[Any, ...]) -> Node:
    return node if _is_same(_shape(node), shape) else _made(_RESHAPE, node, list(shape))


def _arranged(node: Node, order: Order | None) -> Node:
    """Return an operand in a problem's layout; Inductor copies variable ones where it must."""
    arranged = node if order is None else _made(aten.permute.default, node, list(order))
    if node.op == "get_attr" and not _value(arranged).is_contiguous():
        return _made(aten.clone.default, arranged, memory_format=torch.contiguous_format)
    return arranged


def _made(target: Any, *args: Any, **kwargs: Any) -> Node:
    """Return a new node with the shape and strides that later passes read."""
    nodes = [one for one in args if isinstance(one, torch.fx.Node)]
    graph = nodes[0].graph
    known = (graph.materialize_symints(one) if isinstance(one, list) else one for one in args)
    made = graph.call_function(target, tuple(known), kwargs)
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


def _shape(node: Node) -> tuple[Any, ...]:
    return tuple(_value(node).shape)


def _is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether shapes are the same for all sizes of a graph; it gets no guards."""
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(statically_known_true(a == b) for a, b in pairs)
