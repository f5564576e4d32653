"""Rewrite paddings of ONNX models that IREE's importer cannot read.

It reads those of `Conv` and `AveragePool`. For other nodes `auto_pad` becomes `pads`, and
asymmetric pads become a `Pad` before the node, or for a transposed convolution, whose pads crop its
result, a `Slice` after it. Convolutions of bytes get a second axis if they have a single one.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from tilewise.kernels.mlir.frontend.child.onnx_nodes import NodeWriter, rewrite_nodes

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

    def outputs(self) -> int:
        """Return the number of windows with `ceil_mode`, of which none begins after the input."""
        assert self.size is not None
        length = self.size + self.begin + self.end - self.span
        count = -(-length // self.stride) + 1
        begins_inside = (count - 1) * self.stride < self.size + self.begin
        return count if begins_inside else count - 1

    def needed_end(self, outputs: int) -> int:
        """Return the padding after the input that so many windows need."""
        assert self.size is not None
        return max((outputs - 1) * self.stride + self.span - self.size - self.begin, 0)


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
_READ = ("Conv", "AveragePool")  # by the importer, with all paddings
_WITH_WINDOWS = (*_FILTER, "MaxPool", "AveragePool")
_END = 2**63 - 1
_AXES_OPSET = 13
"""The first version with axes as an input of `Squeeze`."""


def rewrite(onnx: Any, graph: Any, opset: int, outer: dict[str, TypeOf] | None = None) -> bool:
    """Rewrite the paddings of a graph and its subgraphs in place; return whether any changed.

    The graph's shapes are inferred; `outer` are types of values from around it. Raise NodeError
    if a padding depends on an unknown size, or cannot be expressed.
    """
    types = defaultdict(TypeOf, {**(outer or {}), **types_of(graph)})

    def written(node: Any) -> list[Any]:
        if node.op_type not in _WITH_WINDOWS or node.domain not in ("", "ai.onnx"):
            return [node]
        return _Writer(onnx, graph, node, types).written(opset)

    return rewrite_nodes(graph, written, lambda inner: rewrite(onnx, inner, opset, types))


class _Writer(NodeWriter):
    """Writes what replaces a convolution or pooling of a graph."""

    def __init__(self, onnx: Any, graph: Any, node: Any, types: dict[str, TypeOf]) -> None:
        super().__init__(onnx, graph, node)
        self._input = types[node.input[0]]
        self._filter = TypeOf()
        if node.op_type in _FILTER:
            self._filter = types[node.input[_FILTER[node.op_type]]]
        self._auto = str(self._given.get("auto_pad", "NOTSET"))

    def written(self, opset: int) -> list[Any]:
        """Return the nodes that replace it."""
        windows = self._windows()
        if windows is None:  # the importer says what the node lacks
            self._nodes.append(self._node)
        elif self._node.op_type in _READ:
            is_uneven = any(one.begin != one.end for one in windows)
            if is_uneven and self._node.op_type == "AveragePool" and self._given.get("ceil_mode"):
                self._refuse("ceil_mode=1, and pads differ before and behind an axis")
            self._nodes.append(self._node)
        elif self._node.op_type == "ConvTranspose":
            self._transposed(windows, opset)
        elif self._node.op_type in _ZERO_POINT and len(windows) == 1 and opset >= _AXES_OPSET:
            self._in_plane(windows[0])
        elif all(one.begin == one.end for one in windows) or opset < LEAST_OPSET:
            if "auto_pad" in self._given:
                self._set_pads([(one.begin, one.end) for one in windows])
            self._nodes.append(self._node)
        else:
            self._padded(windows)
        return self._nodes

    def _windows(self) -> list[PaddedWindow] | None:
        """Return the window of each axis; None if the taps are unknown."""
        taps = self._given.get("kernel_shape") or self._filter.spatial
        if not taps or None in taps:
            return None
        sizes = self._input.spatial or [None] * len(taps)
        if reason := _why_malformed(self._given, self._auto, len(taps), len(sizes)):
            self._refuse(reason)
        ones = [1] * len(taps)
        strides, dilations = (self._given.get(name, ones) for name in ("strides", "dilations"))
        found = list(map(PaddedWindow, sizes, taps, strides, dilations))
        if self._auto in SAME and self._node.op_type != "ConvTranspose":  # which crops its result
            return [self._same(one) for one in found]
        pads = self._given.get("pads") if self._auto == "NOTSET" else None
        pads = pads or [0] * 2 * len(taps)
        pairs = zip(found, pads[: len(taps)], pads[len(taps) :], strict=True)
        return [replace(one, begin=begin, end=end) for one, begin, end in pairs]

    def _same(self, window: PaddedWindow) -> PaddedWindow:
        """Return a window with the padding that gives one output for each stride."""
        total = window.span - 1
        if window.stride > 1:
            if window.size is None:
                self._refuse_size(f"auto_pad={self._auto}")
            total = window.needed_end(-(-window.size // window.stride))
        begin, end = halves(total, is_upper=self._auto == SAME[0])
        return replace(window, begin=begin, end=end)

    def _padded(self, windows: list[PaddedWindow]) -> None:
        """Write a `Pad` and the node without pads."""
        node = self._node
        if node.op_type == "MaxPool" and len(node.output) > 1 and node.output[1]:
            self._refuse(
                "pads differ before and behind an axis, and the indices of the maxima are a result"
            )
        pairs = [(one.begin, one.end) for one in windows]
        if self._given.get("ceil_mode") and self._auto not in SAME:
            if any(one.size is None for one in windows):
                self._refuse_size("pads that differ before and behind an axis")
            pairs = [(one.begin, one.needed_end(one.outputs())) for one in windows]
        node.input[0] = self._pad(pairs)
        self._set_pads([(0, 0)] * len(windows))
        self._drop("ceil_mode")
        self._nodes.append(node)

    def _in_plane(self, line: PaddedWindow) -> None:
        """Write a convolution along one axis as one along two, the first of length one."""
        node, axis, taps = self._node, self._integers([2]), [1, line.taps]
        for at in (0, _FILTER[node.op_type]):
            node.input[at] = self._made("Unsqueeze", [node.input[at], axis], "plane")
        result, node.output[0] = node.output[0], self._name("plane")
        self._set(kernel_shape=taps, strides=[1, line.stride], dilations=[1, line.dilation])
        if line.begin == line.end:
            self._set_pads([(0, 0), (line.begin, line.end)])
            self._nodes.append(node)
        else:
            self._padded([PaddedWindow(1, 1), line])
        self._add("Squeeze", [node.output[0], axis], result)

    def _pad(self, pairs: list[tuple[int, int]]) -> str:
        """Return the name of the node's input with padding."""
        node = self._node
        ends = [0, 0, *(begin for begin, _ in pairs), 0, 0, *(end for _, end in pairs)]
        at = _ZERO_POINT.get(node.op_type)
        fill = node.input[at] if at is not None and len(node.input) > at else ""
        if not fill:
            least = self._least() if node.op_type == "MaxPool" else 0
            made = self._onnx.helper.make_tensor(
                self._name("fill"), self._input.element, (), [least]
            )
            fill = self._held(made)
        inputs = [node.input[0], self._integers(ends), fill]
        return self._made("Pad", inputs, "padded", mode="constant")

    def _least(self) -> float | int:
        kind = self._onnx.helper.tensor_dtype_to_np_dtype(self._input.element)
        return int(np.iinfo(kind).min) if np.issubdtype(kind, np.integer) else float("-inf")

    def _transposed(self, windows: list[PaddedWindow], opset: int) -> None:
        """Write a transposed convolution with symmetric pads, and a slice for the rest."""
        node, count = self._node, len(windows)
        self._nodes.append(node)
        if opset < LEAST_OPSET:
            return
        more = list(self._given.get("output_padding", [0] * count))
        shape, pairs = self._given.get("output_shape"), [(one.begin, one.end) for one in windows]
        if shape is not None or self._auto in SAME:
            for at, one in enumerate(windows):
                total = one.span - one.stride + more[at]
                if shape is not None:
                    if one.size is None:
                        self._refuse_size("output_shape")
                    total += one.size * one.stride - shape[-count:][at]
                more[at] += max(-total, 0)
                pairs[at] = halves(max(total, 0), is_upper=self._auto == SAME[0])
        common = [min(pair) for pair in pairs]
        self._set_pads([(least, least) for least in common])
        if any(more):
            self._set(output_padding=more)
        if any(begin != end for begin, end in pairs):
            result, node.output[0] = node.output[0], self._name("uncut")
            starts = [begin - least for (begin, _), least in zip(pairs, common, strict=True)]
            ends = [least - end if end > least else _END
                    for (_, end), least in zip(pairs, common, strict=True)]  # fmt: skip
            names = map(self._integers, (starts, ends, range(2, 2 + count)))
            self._add("Slice", [node.output[0], *names], result)

    def _refuse_size(self, what: str) -> NoReturn:
        sizes = self._input.spatial
        known = "unknown" if sizes is None else "x".join(str(one or "?") for one in sizes)
        self._refuse(f"{what} needs the size of {self._node.input[0]}, and that is {known}; "
                     "give the model static shapes")  # fmt: skip

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
