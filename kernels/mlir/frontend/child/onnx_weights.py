"""Write quantised weights and some products of ONNX models in operators that IREE's importer knows.

    D = (Cast(codes) - Cast(zero points)) * scales

stands for a `DequantizeLinear` of 4 bits or of blocks, and `MatMul(A, Transpose(D))` for a
`MatMulNBits`. Codes of 4 bits stay two in a byte, and shifts take them apart, so that a reader sees
how many bits they have. Scales and zero points are repeated for each element of their block.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewise.kernels.mlir.frontend.child.onnx_nodes import Array, NodeWriter, rewrite_nodes
from tilewise.kernels.mlir.frontend.child.onnx_pads import types_of

LEAST_OPSET = 13
"""The first version with the axes of `Unsqueeze` as an input."""
CONTRIBUTED = "com.microsoft"
_LINEAR = ("QuantizeLinear", "DequantizeLinear")
_ALIKE = ("Gelu", "GridSample", "Range", "RotaryEmbedding", "Trilu")
"""Contributed operators that mean what IREE's importer takes them for."""
_NIBBLE, _BYTE = 4, 8


def rewrite(onnx: Any, graph: Any, outer: Mapping[str, Any] | None = None) -> bool:
    """Rewrite the weights of a graph and its subgraphs in place; raise NodeError."""
    tensors = {**(outer or {}), **{one.name: one for one in graph.initializer}}

    def written(node: Any) -> list[Any]:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
        if node.domain == CONTRIBUTED and node.op_type in _LINEAR:
            node.domain = ""
        return _Writer(onnx, graph, node, tensors).written()

    return rewrite_nodes(graph, written, lambda inner: rewrite(onnx, inner, tensors))


class _Writer(NodeWriter):
    """Writes what replaces one node; `tensors` are constants by name."""

    def __init__(self, onnx: Any, graph: Any, node: Any, tensors: Mapping[str, Any]) -> None:
        super().__init__(onnx, graph, node)
        self._tensors = tensors

    def written(self) -> list[Any]:
        """Return the nodes that replace it, or the node itself."""
        node = self._node
        is_contributed = node.domain == CONTRIBUTED
        if node.op_type == "MatMulNBits" and is_contributed:
            self._matmul()
        elif node.op_type == "FusedMatMul" and is_contributed:
            self._fused()
        elif is_contributed and node.op_type not in _ALIKE and self._onnx.defs.has(node.op_type):
            self._refuse(f"the operator of {CONTRIBUTED} is not known, only ONNX's own")
        elif node.op_type == "DequantizeLinear" and not node.domain:
            self._linear()
        elif node.op_type == "Swish" and not node.domain:
            sigmoid = self._made("Sigmoid", [self._scaled(node.input[0])], "sigmoid")
            self._add("Mul", [node.input[0], sigmoid], node.output[0])
        return self._nodes or [node]

    def _fused(self) -> None:
        """Write a `FusedMatMul`: the product of transposed matrices, the first one scaled."""
        if self._given.get("transBatchA") or self._given.get("transBatchB"):
            self._refuse("transBatchA and transBatchB are not known")
        inputs = [self._scaled(self._node.input[0]), self._node.input[1]]
        for i, name in enumerate(("transA", "transB")):
            axes = range(self._type(self._node.input[i])[1]) if self._given.get(name) else ()
            if len(axes) > 1:
                order = [*axes[:-2], *axes[:-3:-1]]
                inputs[i] = self._made("Transpose", [inputs[i]], "transposed", perm=order)
        self._add("MatMul", inputs, self._node.output[0])

    def _scaled(self, name: str) -> str:
        """Return the name of an input times `alpha`."""
        alpha = self._given.get("alpha", 1.0)
        if alpha == 1:
            return name
        dtype = self._onnx.helper.tensor_dtype_to_np_dtype(self._type(name)[0])
        return self._made("Mul", [name, self._constant("alpha", np.array(alpha, dtype))], "scaled")

    def _type(self, name: str) -> tuple[int, int]:
        """Return the element type of a tensor and the number of its axes."""
        if name in self._tensors:
            return self._tensors[name].data_type, len(self._tensors[name].dims)
        known = types_of(self._graph)[name]
        if known.shape is None:
            self._refuse(f"{name} has no type; save the model by ONNX Runtime, or infer shapes")
        return known.element, len(known.shape)

    def _matmul(self) -> None:
        inputs = [*self._node.input, *[""] * 6]
        depth, columns, block, bits = (
            int(self._given.get(name, default))
            for name, default in (("K", 0), ("N", 0), ("block_size", 0), ("bits", _NIBBLE))
        )
        if bits not in (_NIBBLE, _BYTE):
            self._refuse(f"bits={bits}; 4 and 8 are known")
        if min(depth, columns, block) < 1:
            self._refuse(f"K={depth}, N={columns} and block_size={block}; each is at least 1")
        blocks = -(-depth // block)
        groups = self._array(inputs[4])
        if inputs[4] and (groups is None or list(groups.reshape(-1)[:depth]) != [
            i // block for i in range(depth)
        ]):  # fmt: skip
            self._refuse("g_idx puts the elements of the reduction in another order")
        packed, scales = self._array(inputs[1]), self._array(inputs[2])
        if packed is None or scales is None:
            self._refuse("B and its scales are no constants")
        codes = self._unpacked(packed, columns, blocks * block, bits)[:, :depth]
        zeros: Array | int = 1 << (bits - 1)
        if inputs[3]:
            zeros = self._zeros(self._array(inputs[3]), columns, blocks, bits)
        scales = self._shaped(scales, (columns, blocks), "scales")
        weights = self._dequantised(codes, bits, scales, zeros, 1, block)
        transposed = self._made("Transpose", [weights], "transposed", perm=[1, 0])
        if inputs[5]:
            product = self._made("MatMul", [inputs[0], transposed], "product")
            self._add("Add", [product, inputs[5]], self._node.output[0])
        else:
            self._add("MatMul", [inputs[0], transposed], self._node.output[0])

    def _zeros(self, given: Array | None, columns: int, blocks: int, bits: int) -> Array:
        """Return the zero points of `MatMulNBits`: packed as codes are, or floats."""
        if given is None:
            self._refuse("its zero points are no constants")
        if given.dtype == np.uint8:
            return self._unpacked(given, columns, blocks, bits)
        found = self._shaped(given, (columns, blocks), "zero points").astype(np.float64)
        if not np.all((found == np.rint(found)) & (found >= 0) & (found < 1 << bits)):
            self._refuse("its zero points are no whole numbers of as many bits as the codes")
        return found.astype(np.uint8)

    def _unpacked(self, packed: Array, rows: int, length: int, bits: int) -> Array:
        """Return so many codes of each row, of which a byte may hold two, the lower one first."""
        width = -(-length * bits // _BYTE)
        packed = self._shaped(packed, (rows, width), "codes or zero points")
        if bits == _BYTE:
            return packed
        pairs = np.stack([packed & 15, packed >> _NIBBLE], axis=-1)
        return pairs.reshape(rows, 2 * width)[:, :length]

    def _shaped(self, array: Array, shape: tuple[int, ...], what: str) -> Array:
        if array.size != np.prod(shape):
            self._refuse(f"{what} of shape {_by(array.shape)}, where {_by(shape)} are needed")
        return array.reshape(shape)

    def _linear(self) -> None:
        """Write a `DequantizeLinear` of constants, if it has to be."""
        codes, scales = (self._array(name) for name in self._node.input[:2])
        block = int(self._given.get("block_size", 0))
        if codes is None or scales is None:
            return
        kinds = self._onnx.TensorProto
        kind = self._tensors[self._node.input[0]].data_type
        bits = {kinds.INT4: _NIBBLE, kinds.UINT4: _NIBBLE, kinds.INT8: _BYTE, kinds.UINT8: _BYTE}
        if kind not in bits or not (block or bits[kind] == _NIBBLE):
            return
        given = self._node.input[2] if len(self._node.input) > 2 else ""
        zeros = self._array(given)
        if given and zeros is None:
            return
        half = 1 << (bits[kind] - 1) if kind in (kinds.INT4, kinds.INT8) else 0
        axis = int(self._given.get("axis", 1)) % max(codes.ndim, 1)
        if block and (scales.ndim != codes.ndim or any(
            size != (-(-length // block) if i == axis else length)
            for i, (size, length) in enumerate(zip(scales.shape, codes.shape, strict=True))
        )):  # fmt: skip
            self._refuse(f"scales of shape {_by(scales.shape)} for blocks of {block}")
        if scales.ndim and not block:
            shape = tuple(length if i == axis else 1 for i, length in enumerate(codes.shape))
            scales = self._shaped(scales, shape if scales.size > 1 else (), "scales")
        if zeros is not None:
            zeros = self._shaped(zeros, scales.shape, "zero points") + half
        weights = self._dequantised(
            codes + half, bits[kind], scales, half if zeros is None else zeros, axis, block
        )
        kind = self._given.get("output_dtype") or self._tensors[self._node.input[1]].data_type
        self._add("Cast", [weights], self._node.output[0], to=kind)

    def _dequantised(
        self, codes: Array, bits: int, scales: Array, zeros: Array | int, axis: int, block: int
    ) -> str:
        """Return the name of `(codes - zeros) * scales`, of unsigned codes; in the scales' type."""
        kind = self._onnx.helper.np_dtype_to_tensor_dtype(scales.dtype)
        if isinstance(zeros, int):
            zero = self._constant("zero", np.array(zeros, scales.dtype))
        else:
            repeated = self._repeated(self._codes(zeros, bits), zeros, codes, axis, block)
            zero = self._made("Cast", [repeated], "zeros", to=kind)
        wide = self._made("Cast", [self._codes(codes, bits)], "wide", to=kind)
        less = self._made("Sub", [wide, zero], "less")
        scale = self._repeated(self._constant("scales", scales), scales, codes, axis, block)
        return self._made("Mul", [less, scale], "weights")

    def _codes(self, values: Array, bits: int) -> str:
        """Return the name of unsigned codes."""
        values = values.astype(np.uint8)
        if bits == _BYTE or not values.ndim:
            return self._constant("codes", values)
        length = values.shape[-1]
        even = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, length % 2)])
        packed = self._constant("codes", even[..., 0::2] | (even[..., 1::2] << _NIBBLE))
        four = self._constant("four", np.array(_NIBBLE, np.uint8))
        left = self._made("BitShift", [packed, four], "left", direction="LEFT")
        halves = [
            self._made("BitShift", [one, four], "half", direction="RIGHT") for one in (left, packed)
        ]
        last = self._integers([values.ndim])
        halves = [self._made("Unsqueeze", [one, last], "pair") for one in halves]
        pairs = self._made("Concat", halves, "pairs", axis=values.ndim)
        flat = self._made("Reshape", [pairs, self._integers(even.shape)], "flat")
        return flat if even.shape == values.shape else self._cut(flat, values.ndim - 1, length)

    def _repeated(self, name: str, values: Array, codes: Array, axis: int, block: int) -> str:
        """Return the name of values that are repeated for each element of their block."""
        if not block:
            return name
        shape = (*values.shape[: axis + 1], block, *values.shape[axis + 1 :])
        whole = (*values.shape[:axis], values.shape[axis] * block, *values.shape[axis + 1 :])
        name = self._made("Unsqueeze", [name, self._integers([axis + 1])], "blocks")
        name = self._made("Expand", [name, self._integers(shape)], "elements")
        name = self._made("Reshape", [name, self._integers(whole)], "repeated")
        return name if whole == codes.shape else self._cut(name, axis, codes.shape[axis])

    def _cut(self, name: str, axis: int, length: int) -> str:
        ends = [self._integers([one]) for one in (0, length, axis)]
        return self._made("Slice", [name, *ends], "cut")

    def _array(self, name: str) -> Array | None:
        """Return a constant, integers of 4 bits as int64; None if it is none."""
        if name not in self._tensors:
            return None
        found: Array = self._onnx.numpy_helper.to_array(self._tensors[name])
        kinds = self._onnx.TensorProto
        is_narrow = self._tensors[name].data_type in (kinds.INT4, kinds.UINT4, kinds.INT8)
        return found.astype(np.int64) if is_narrow else found


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "one number"
