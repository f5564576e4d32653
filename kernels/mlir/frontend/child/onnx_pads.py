"""Rewrite paddings of ONNX models for IREE's importer, which takes symmetric numbers.

`auto_pad` becomes `pads`. Asymmetric pads become a `Pad` before the node, or for a transposed
convolution, whose pads crop its result, a `Slice` after it.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

FLOAT = 1


@dataclass(frozen=True)
class TypeOf:
    """The type of a value: ONNX's element type, and a shape with None for unknown parts."""

    element: int = FLOAT
    shape: tuple[int | None, ...] | None = None

    @property
    def spatial(self) -> list[int | None] | None:
        """The axes after batch and channels."""
        return None if self.shape is None else list(self.shape[2:])


def types_of(graph: Any) -> dict[str, TypeOf]:
    """Return the type of each value of a graph, an empty one for unknown names."""
    found: dict[str, TypeOf] = defaultdict(TypeOf)
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape"):
            dims = (one.dim_value if one.HasField("dim_value") else None for one in kind.shape.dim)
            found[value.name] = TypeOf(kind.elem_type, tuple(dims))
    for tensor in graph.initializer:
        found[tensor.name] = TypeOf(tensor.data_type, tuple(tensor.dims))
    return found


def attributes(onnx: Any, node: Any) -> dict[str, Any]:
    """Return a node's attributes by name, with decoded text."""
    values = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return {name: one.decode() if isinstance(one, bytes) else one for name, one in values.items()}


@dataclass(frozen=True)
class PaddedWindow:
    """Windows along one axis of an input of `size` (None if unknown), padded at both ends."""

    size: int | None
    taps: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0

    @property
    def span(self) -> int:
        """The elements from the first tap to the last one."""
        return (self.taps - 1) * self.dilation + 1

    def outputs(self, *, rounds_up: bool = False) -> int:
        """Return the number of windows; with `ceil_mode`, none begins after the input."""
        assert self.size is not None
        length = self.size + self.begin + self.end - self.span
        count = (-(-length // self.stride) if rounds_up else length // self.stride) + 1
        if rounds_up and (count - 1) * self.stride >= self.size + self.begin:
            count -= 1
        return count

    def needed_end(self, outputs: int) -> int:
        """Return the padding after the input that so many windows need."""
        assert self.size is not None
        return max((outputs - 1) * self.stride + self.span - self.size - self.begin, 0)

    def counts(self, outputs: int, *, with_padding: bool) -> list[int]:
        """Return how many taps of each window are on the input, or on input and padding."""
        assert self.size is not None
        first = -self.begin if with_padding else 0
        last = self.size + (self.end if with_padding else 0)
        places = (
            [at * self.stride - self.begin + tap * self.dilation for tap in range(self.taps)]
            for at in range(outputs)
        )
        return [sum(first <= place < last for place in one) for one in places]


def same_padding(window: PaddedWindow, *, is_upper: bool) -> tuple[int, int] | None:
    """Return the padding of `SAME_UPPER` or `SAME_LOWER`; None if it needs an unknown size."""
    if window.stride == 1:
        total = window.span - 1
    elif window.size is None:
        return None
    else:
        outputs = -(-window.size // window.stride)
        total = max((outputs - 1) * window.stride + window.span - window.size, 0)
    return halves(total, is_upper=is_upper)


def halves(total: int, *, is_upper: bool) -> tuple[int, int]:
    """Split padding into both sides; an odd element goes to the end if `is_upper`."""
    less = total // 2
    return (less, total - less) if is_upper else (total - less, less)


LEAST_OPSET = 11
"""The first version with pads as an input of `Pad`; older unconverted models stay unchanged."""
SAME = ("SAME_UPPER", "SAME_LOWER")
AUTO = (*SAME, "VALID", "NOTSET")
_FILTER = {"Conv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3}
_ZERO_POINT = {"ConvInteger": 2, "QLinearConv": 2}
_WITH_WINDOWS = (*_FILTER, "MaxPool", "AveragePool")
_END = 2**63 - 1


class PaddingError(Exception):
    """A padding cannot be resolved; the message says why."""


def rewrite(onnx: Any, graph: Any, opset: int, outer: dict[str, TypeOf] | None = None) -> bool:
    """Rewrite the paddings of a graph and its subgraphs in place; return whether any changed.

    The graph's shapes are inferred; `outer` are types of values from around it. Raise PaddingError
    if a padding depends on an unknown size, or cannot be expressed.
    """
    types = defaultdict(TypeOf, {**(outer or {}), **types_of(graph)})
    nodes, has_changed = list[Any](), False
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                has_changed |= bool(inner.node) and rewrite(onnx, inner, opset, types)
        made = [type(node).FromString(node.SerializeToString())]
        if node.op_type in _WITH_WINDOWS and node.domain in ("", "ai.onnx"):
            made = list(_Node(onnx, graph, made[0], types).resolved(opset))
            has_changed |= made != [node]
        nodes += made
    if has_changed:
        del graph.node[:]
        graph.node.extend(nodes)
    return has_changed


class _Node:
    """A convolution or pooling of a graph, which may get further nodes and constants."""

    def __init__(self, onnx: Any, graph: Any, node: Any, types: dict[str, TypeOf]) -> None:
        self._onnx, self._graph, self._node, self._types = onnx, graph, node, types
        self._given = attributes(onnx, node)
        self._auto = str(self._given.get("auto_pad", "NOTSET"))

    def resolved(self, opset: int) -> Iterator[Any]:
        """Yield the nodes that replace it."""
        windows = self._windows()
        if windows is None:  # the importer says what the node lacks
            yield self._node
        elif self._node.op_type == "ConvTranspose":
            yield from self._transposed(windows, opset)
        elif all(one.begin == one.end for one in windows) or opset < LEAST_OPSET:
            if "auto_pad" in self._given:
                self._set_pads([(one.begin, one.end) for one in windows])
            yield self._node
        else:
            yield from self._padded(windows)

    def _windows(self) -> list[PaddedWindow] | None:
        """Return the window of each axis; None if the taps are unknown."""
        taps = self._given.get("kernel_shape")
        if taps is None and self._node.op_type in _FILTER:
            taps = self._types[self._node.input[_FILTER[self._node.op_type]]].spatial
        if not taps or None in taps:
            return None
        sizes = self._types[self._node.input[0]].spatial or [None] * len(taps)
        if reason := _why_malformed(self._given, self._auto, len(taps), len(sizes)):
            raise PaddingError(f"{self._name}: {reason}")
        ones = [1] * len(taps)
        found = [
            PaddedWindow(*one)
            for one in zip(
                sizes, taps, self._given.get("strides", ones), self._given.get("dilations", ones),
                strict=True,
            )
        ]  # fmt: skip
        if self._node.op_type == "ConvTranspose":
            return found
        return [self._with_pads(one, at, len(taps)) for at, one in enumerate(found)]

    def _with_pads(self, window: PaddedWindow, at: int, axes: int) -> PaddedWindow:
        pads = self._given.get("pads", [0] * 2 * axes) if self._auto == "NOTSET" else [0] * 2 * axes
        begin, end = pads[at], pads[axes + at]
        if self._auto in SAME:
            pair = same_padding(window, is_upper=self._auto == SAME[0])
            if pair is None:
                self._refuse_size(f"auto_pad={self._auto}")
            else:
                begin, end = pair
        return replace(window, begin=begin, end=end)

    def _padded(self, windows: list[PaddedWindow]) -> Iterator[Any]:
        """Yield a `Pad` and the node without pads; an average also needs a factor."""
        node, given = self._node, self._given
        if node.op_type == "MaxPool" and len(node.output) > 1 and node.output[1]:
            raise PaddingError(f"{self._name}: pads differ before and behind an axis, and the "
                               "indices of the maxima are a result")  # fmt: skip
        rounds_up = bool(given.get("ceil_mode")) and self._auto not in SAME
        is_average = node.op_type == "AveragePool"
        pairs = [(one.begin, one.end) for one in windows]
        means, counts = node.output[0], None
        if rounds_up or is_average:
            if any(one.size is None for one in windows):
                self._refuse_size("pads that differ before and behind an axis")
            outputs = [one.outputs(rounds_up=rounds_up) for one in windows]
            if rounds_up:
                pairs = [(one.begin, one.needed_end(count))
                         for one, count in zip(windows, outputs, strict=True)]  # fmt: skip
            counts = _counts(windows, outputs, with_padding=bool(given.get("count_include_pad")))
        padded = self._new("padded")
        yield self._pad(padded, pairs)
        node.input[0] = padded
        self._set_pads([(0, 0)] * len(windows))
        self._drop("ceil_mode")
        if not is_average or counts is None:
            yield node
            return
        self._set(count_include_pad=1)
        node.output[0] = self._new("means")
        yield node
        weights = self._constant("weights", counts.shape, counts.reshape(-1).tolist())
        yield self._onnx.helper.make_node("Mul", [node.output[0], weights], [means])

    def _pad(self, padded: str, pairs: list[tuple[int, int]]) -> Any:
        """Return the node that makes `padded` of the node's input."""
        node = self._node
        ends = [0, 0, *(begin for begin, _ in pairs), 0, 0, *(end for _, end in pairs)]
        at = _ZERO_POINT.get(node.op_type)
        fill = node.input[at] if at is not None and len(node.input) > at else ""
        if not fill:
            least = self._least() if node.op_type == "MaxPool" else 0
            fill = self._constant("fill", (), [least])
        inputs = [node.input[0], self._integers("pads", ends), fill]
        return self._onnx.helper.make_node("Pad", inputs, [padded], mode="constant")

    def _least(self) -> float | int:
        kind = self._onnx.helper.tensor_dtype_to_np_dtype(self._types[self._node.input[0]].element)
        return int(np.iinfo(kind).min) if np.issubdtype(kind, np.integer) else float("-inf")

    def _transposed(self, windows: list[PaddedWindow], opset: int) -> Iterator[Any]:
        """Yield a transposed convolution with symmetric pads, and a slice for the rest."""
        node, count = self._node, len(windows)
        more = list(self._given.get("output_padding", [0] * count))
        shape, pairs = self._given.get("output_shape"), list[tuple[int, int]]()
        pads = (
            self._given.get("pads", [0] * 2 * count) if self._auto == "NOTSET" else [0] * 2 * count
        )
        for at, one in enumerate(windows):
            if shape is None and self._auto not in SAME:
                pairs.append((pads[at], pads[count + at]))
                continue
            total = one.span - one.stride + more[at]
            if shape is not None:
                if one.size is None:
                    self._refuse_size("output_shape")
                    return
                total += one.size * one.stride - shape[-count:][at]
            more[at] += max(-total, 0)
            pairs.append(halves(max(total, 0), is_upper=self._auto == SAME[0]))
        common = [min(pair) for pair in pairs]
        if opset < LEAST_OPSET:
            yield node
            return
        self._set_pads([(least, least) for least in common])
        if any(more):
            self._set(output_padding=more)
        result = node.output[0]
        is_cut = any(begin != end for begin, end in pairs)
        if is_cut:
            node.output[0] = self._new("uncut")
        yield node
        if is_cut:
            starts = [begin - least for (begin, _), least in zip(pairs, common, strict=True)]
            ends = [least - end if end > least else _END
                    for (_, end), least in zip(pairs, common, strict=True)]  # fmt: skip
            names = [self._integers("starts", starts), self._integers("ends", ends),
                     self._integers("axes", list(range(2, 2 + count)))]  # fmt: skip
            yield self._onnx.helper.make_node("Slice", [node.output[0], *names], [result])

    @property
    def _name(self) -> str:
        return f"{self._node.op_type} {self._node.name or self._node.output[0]}"

    def _refuse_size(self, what: str) -> None:
        sizes = self._types[self._node.input[0]].spatial
        told = "unknown" if sizes is None else "x".join(str(one or "?") for one in sizes)
        raise PaddingError(f"{self._name}: {what} needs the size of {self._node.input[0]}, and "
                           f"that is {told}; give the model static shapes")  # fmt: skip

    def _set_pads(self, pairs: list[tuple[int, int]]) -> None:
        """Replace `auto_pad` and other sources of pads by numbers."""
        self._drop("auto_pad", "output_shape", *(["ceil_mode"] if self._auto in SAME else []))
        has_pads = "pads" in self._given or any(map(any, pairs))
        if has_pads:
            self._set(pads=[*(begin for begin, _ in pairs), *(end for _, end in pairs)])

    def _set(self, **values: Any) -> None:
        self._drop(*values)
        make = self._onnx.helper.make_attribute
        self._node.attribute.extend(make(name, value) for name, value in values.items())

    def _drop(self, *names: str) -> None:
        kept = [one for one in self._node.attribute if one.name not in names]
        kept = [type(one).FromString(one.SerializeToString()) for one in kept]
        del self._node.attribute[:]
        self._node.attribute.extend(kept)

    def _new(self, what: str) -> str:
        """Return a new name of a value."""
        name = f"{self._node.output[0]}/{what}"
        while name in self._types:
            name += "_"
        self._types[name] = TypeOf()
        return name

    def _constant(self, what: str, shape: tuple[int, ...], values: list[Any]) -> str:
        """Return the name of a constant of the input's type."""
        element = self._types[self._node.input[0]].element
        return self._held(self._onnx.helper.make_tensor(self._new(what), element, shape, values))

    def _integers(self, what: str, values: list[int]) -> str:
        kind = self._onnx.TensorProto.INT64
        shape = [len(values)]
        return self._held(self._onnx.helper.make_tensor(self._new(what), kind, shape, values))

    def _held(self, tensor: Any) -> str:
        self._graph.initializer.append(tensor)
        return str(tensor.name)


def _why_malformed(given: dict[str, Any], auto: str, axes: int, input_axes: int) -> str:
    """Return what is wrong with the attributes of windows; empty if nothing is."""
    if auto not in AUTO:
        return f"auto_pad={auto}; known are {', '.join(AUTO)}"
    if axes != input_axes:
        return f"its window has {axes} axes, and its input {input_axes} besides batch and channels"
    for name, sides in (("strides", 1), ("dilations", 1), ("output_padding", 1), ("pads", 2)):
        values = given.get(name)
        if values is not None and len(values) != sides * axes:
            return f"{name} has {len(values)} numbers; {axes} axes take {sides * axes}"
        if values is not None and name in ("strides", "dilations") and min(values) < 1:
            return f"{name}={','.join(map(str, values))}; each is at least 1"
    return ""


def _counts(windows: list[PaddedWindow], outputs: list[int], *, with_padding: bool) -> NDArray[Any]:
    """Return the factors of averages over whole windows: all taps over counted taps."""
    ratios = np.ones((1, 1), np.float64)
    for window, count in zip(windows, outputs, strict=True):
        counted = np.array(window.counts(count, with_padding=with_padding), np.float64)
        with np.errstate(divide="ignore"):
            ratios = ratios[..., np.newaxis] * (window.taps / counted)
    return ratios
