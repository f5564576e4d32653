"""Decompose attention into two matmuls and a softmax between them.

IREE keeps attention as one op, which no problem is, and lowers few of its spellings. What torch and
ONNX have becomes ops of torch; IREE's own ops are taken apart by IREE.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewise.kernels.mlir.frontend.child.operations import (
    FUNCTIONS,
    number_operations,
    operations,
    run_passes,
    where,
)
from tilewise.kernels.mlir.frontend.child.torch_writing import (
    FLOATS,
    RefusedError,
    TorchWriter,
    constant,
    tensor_type_of,
)
from tilewise.kernels.mlir.frontend.child.values import is_used, splat

ONNX = "onnx.Attention"
SDPA = "torch.aten.scaled_dot_product_attention"
FLASH = "torch.aten._scaled_dot_product_flash_attention_for_cpu"
IN_IREE = ("iree_linalg_ext.attention", "iree_linalg_ext.online_attention")
_IREE_PASSES = "iree-linalg-ext-convert-attention-to-online-attention," \
    "iree-linalg-ext-decompose-attention{use-exp2=false}"  # fmt: skip
_LOWEST = float(np.finfo(np.float32).min)
_ONNX_DOUBLE = 11


def decompose(module: Any) -> bool:
    """Decompose all attention ops of a module in place; return whether there was any.

    Raise ValueError with the place and the reason if that is not possible.
    """
    found = [(_spelling(one[0]), *one) for one in operations(module.operation)]
    found = [one for one in found if one[0]]
    if not found:
        return False
    number_operations(module)
    for spelling, op, function, number in found:
        if spelling in IN_IREE:
            continue
        try:
            _replace(op, (_of_onnx if spelling == ONNX else _of_torch)(op))
        except RefusedError as refusal:
            place = where(op, function, number).rpartition(" ")[0]
            raise ValueError(f"{spelling} at {place} {refusal}") from refusal
    if any(spelling in IN_IREE for spelling, *_ in found):
        _in_iree(module)
    return True


def _spelling(op: Any) -> str:
    """Return the name of an op of attention; empty for others."""
    name = op.attributes["name"].value if op.name == "torch.operator" else op.name
    name = name.removesuffix(".default")
    return name if name in (ONNX, SDPA, FLASH, *IN_IREE) else ""


def _in_iree(module: Any) -> None:
    """Take apart IREE's ops by its passes, and let sums start from zeros again.

    IREE writes the first step of a loop, which multiplies zeros by the correction of later steps.
    """
    kinds = [kind for kind in FUNCTIONS[:2] if any(
        op.name == kind for op, _, _ in operations(module.operation))]  # fmt: skip
    passes = ",".join(f"{kind}({_IREE_PASSES})" for kind in kinds)
    run_passes(module, passes)
    for op, _, _ in list(operations(module.operation)):
        if op.name == "linalg.generic" and _multiplies_zeros(op):
            op.results[0].replace_all_uses_with(op.operands[-1])
    run_passes(module, "canonicalize")


def _multiplies_zeros(op: Any) -> bool:
    """Return whether an op multiplies what its result holds, which are zeros."""
    block = op.regions[0].blocks[0]
    is_product = [one.operation.name for one in block.operations] == ["arith.mulf", "linalg.yield"]
    return is_product and is_used(block.arguments[-1]) and splat(op.operands[-1]) == 0


@dataclass(frozen=True)
class _Attention:
    """What an op computes: `softmax(softcap(q k^T * scale) + mask) v` for each head.

    `past` are the positions of the keys before the first query, relevant if `is_causal`.
    """

    query: Any
    key: Any
    value: Any
    mask: Any = None
    scale: float | None = None
    is_causal: bool = False
    softcap: float = 0.0
    past: int = 0


class _Writer(TorchWriter):
    """Writes attention as ops of torch."""

    def with_heads(self, value: Any, batch: Sequence[int]) -> Any:
        """Return keys or values with each head repeated for its group of the query's heads."""
        shape, dtype = tensor_type_of(value)
        if list(shape[:-2]) == list(batch):
            return value
        if len(shape) - 2 != len(batch) or list(shape[:-3]) != list(batch[:-1]) \
                or batch[-1] % shape[-3]:  # fmt: skip
            raise RefusedError(f"has queries of {_dims(batch)} heads, keys and values of "
                                f"{_dims(shape[:-2])}")  # fmt: skip
        count = batch[-1] // shape[-3]
        one, many = ([*shape[:-2], size, *shape[-2:]] for size in (1, count))
        value = self.tensor("aten.unsqueeze", [value, self.whole(len(shape) - 2)], one, dtype)
        operands = [value, self.wholes(many), self.truth(False)]
        value = self.tensor("aten.expand", operands, many, dtype)
        return self.reshaped(value, [*batch, *shape[-2:]])

    def attention(self, one: _Attention) -> Any:
        """Return the result of attention; softmax in f32, products in the type of the query."""
        (*batch, rows, depth), dtype = tensor_type_of(one.query)
        key, value = self.with_heads(one.key, batch), self.with_heads(one.value, batch)
        columns, width = tensor_type_of(key)[0][-2], tensor_type_of(value)[0][-1]
        shape = [*batch, rows, columns]
        axis = len(shape) - 1
        keys = self.transposed(key, axis - 1, axis)
        scores = self.tensor("aten.matmul", [one.query, keys], shape, dtype)
        scores = self.converted(scores, "f32")

        def by(name: str, value: Any, *operands: Any) -> Any:
            return self.tensor(f"aten.{name}", [value, *operands], tensor_type_of(value)[0], "f32")

        scale = 1 / math.sqrt(depth) if one.scale is None else one.scale
        scores = by("mul.Scalar", scores, self.real(scale))
        if one.softcap:
            scores = by("tanh", by("mul.Scalar", scores, self.real(1 / one.softcap)))
            scores = by("mul.Scalar", scores, self.real(one.softcap))
        if one.is_causal:
            seen = np.tri(rows, columns, one.past, dtype=bool)
            mask = self.literal(np.where(seen, 0, -np.inf).astype(np.float32))
            scores = by("add.Tensor", scores, mask, self.whole(1))
        if one.mask is not None:
            scores = self._masked(scores, one.mask)
        weights = self._softmax(scores, has_empty_rows=one.mask is not None)
        operands = [self.converted(weights, dtype), value]
        return self.tensor("aten.matmul", operands, [*batch, rows, width], dtype)

    def _masked(self, scores: Any, mask: Any) -> Any:
        """Return scores with a mask: numbers to add, or whether a key is seen."""
        shape, dtype = tensor_type_of(mask)
        scored = tensor_type_of(scores)[0]
        if len(shape) > len(scored) or any(
            size not in (1, of) for size, of in zip(shape[::-1], scored[::-1], strict=False)
        ):
            raise RefusedError(f"has a mask of {_dims(shape)} on scores of {_dims(scored)}")
        if dtype == "i1":
            operands = [mask, scores, self.real(-math.inf)]
            return self.tensor("aten.where.ScalarOther", operands, scored, "f32")
        if dtype not in FLOATS:
            raise RefusedError(f"has a mask of {dtype}; known are i1 and {', '.join(FLOATS)}")
        operands = [scores, self.converted(mask, "f32"), self.whole(1)]
        return self.tensor("aten.add.Tensor", operands, scored, "f32")

    def _softmax(self, scores: Any, *, has_empty_rows: bool) -> Any:
        """Return softmax along the last axis; zeros for a row that sees no key.

        A sum is at least 1 otherwise, since the largest score adds exp(0).
        """
        shape = tensor_type_of(scores)[0]
        row = [*shape[:-1], 1]
        axes, yes = self.wholes([len(shape) - 1]), self.truth(True)
        most = self.tensor("aten.amax", [scores, axes, yes], row, "f32")
        if has_empty_rows:
            most = self._at_least(most, _LOWEST)
        less = self.tensor("aten.sub.Tensor", [scores, most, self.whole(1)], shape, "f32")
        made = self.tensor("aten.exp", [less], shape, "f32")
        total = self.tensor("aten.sum.dim_IntList", [made, axes, yes, self.none()], row, "f32")
        if has_empty_rows:
            total = self._at_least(total, 1.0)
        return self.tensor("aten.div.Tensor", [made, total], shape, "f32")

    def _at_least(self, value: Any, least: float) -> Any:
        operands = [value, self.real(least), self.none()]
        return self.tensor("aten.clamp", operands, tensor_type_of(value)[0], "f32")


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _constant(op: Any, number: int, name: str) -> Any:
    """Return the value of a constant operand; None for torch's None or no operand."""
    return constant(op.operands[number], name) if number < len(op.operands) else None


def _tensor(op: Any, number: int) -> Any:
    """Return an operand; None for torch's None or no operand."""
    if number >= len(op.operands) or str(op.operands[number].type) == "!torch.none":
        return None
    return op.operands[number]


def _checked(*tensors: Any) -> None:
    types = [tensor_type_of(one)[1] for one in tensors]
    if types[0] not in FLOATS or len(set(types)) > 1:
        raise RefusedError(
            f"has operands of {', '.join(types)}; give all of them one of {', '.join(FLOATS)}"
        )


def _of_torch(op: Any) -> list[Any]:
    """Return the results of torch's ops; None for the sums of exponentials of `FLASH`."""
    is_flash = _spelling(op) == FLASH
    dropout, causal, mask, scale = (3, 4, 5, 6) if is_flash else (4, 5, 3, 6)
    if _constant(op, dropout, "dropout"):
        raise RefusedError("drops weights at random, as training does; export it for inference")
    _checked(*list(op.operands)[:3])
    found = _Attention(
        op.operands[0], op.operands[1], op.operands[2], _tensor(op, mask),
        _constant(op, scale, "scale"), bool(_constant(op, causal, "is_causal")),
    )  # fmt: skip
    if len(tensor_type_of(found.query)[0]) < 3:
        raise RefusedError("has no heads; give queries of 3 axes or more")
    return [_Writer(op).attention(found), *[None] * (len(op.results) - 1)]


def _of_onnx(op: Any) -> list[Any]:
    """Return the results of ONNX's op, by its definition in operator sets 23 to 25.

    The softcap comes before the mask.
    """
    named = {name: op.attributes[f"torch.onnx.{name}"].value for name in (
        "is_causal", "scale", "softcap", "q_num_heads", "kv_num_heads", "softmax_precision",
        "left_window_size", "right_window_size",
    ) if f"torch.onnx.{name}" in op.attributes}  # fmt: skip
    if named.get("softmax_precision") == _ONNX_DOUBLE:
        raise RefusedError("has softmax_precision=11 (f64); softmax is computed in f32")
    if max(named.get("left_window_size", -1), named.get("right_window_size", -1)) >= 0:
        raise RefusedError("has a sliding window; give a mask")
    if _tensor(op, 6) is not None:
        raise RefusedError("has nonpad_kv_seqlen, a length that data decides; give a mask")
    write, heads = _Writer(op), list(op.operands)[:3]
    _checked(*heads)
    is_flat = len(tensor_type_of(heads[0])[0]) == 3
    if is_flat and not named.keys() >= {"q_num_heads", "kv_num_heads"}:
        raise RefusedError("has 3 axes; give q_num_heads and kv_num_heads, or 4 axes")
    if is_flat:
        counts = [named["q_num_heads"], *[named["kv_num_heads"]] * 2]
        heads = [_split(write, *one) for one in zip(heads, counts, strict=True)]
    query, key, value = heads
    past = 0
    if _tensor(op, 4) is not None:
        past = tensor_type_of(op.operands[4])[0][2]
        key, value = (_joined(write, op.operands[4 + i], heads[1 + i]) for i in range(2))
    mask, keys = _tensor(op, 3), tensor_type_of(key)[0][2]
    if mask is not None and (seen := tensor_type_of(mask)[0][-1]) != keys:  # ONNX hides the others
        raise RefusedError(f"has a mask of {seen} keys, and {keys} keys; give one of all")
    made = write.attention(_Attention(
        query, key, value, mask, named.get("scale"), bool(named.get("is_causal", 0)),
        named.get("softcap", 0.0), past,
    ))  # fmt: skip
    if is_flat:
        made = write.transposed(made, 1, 2)
        (batch, rows, count, width), _ = tensor_type_of(made)
        made = write.reshaped(made, [batch, rows, count * width])
    return [made, key, value, None][: len(op.results)]


def _split(write: _Writer, value: Any, heads: int) -> Any:
    """Return `[batch, heads, positions, depth]` of a tensor with heads side by side."""
    (batch, rows, width), _ = tensor_type_of(value)
    return write.transposed(write.reshaped(value, [batch, rows, heads, width // heads]), 1, 2)


def _joined(write: _Writer, past: Any, value: Any) -> Any:
    """Return earlier keys or values with those of this step behind them."""
    (batch, heads, before, depth), dtype = tensor_type_of(past)
    shape = [batch, heads, before + tensor_type_of(value)[0][2], depth]
    both = write.make("prim.ListConstruct", [past, value], "!torch.list<vtensor>")
    return write.tensor("aten.cat", [both, write.whole(2)], shape, dtype)


def _replace(op: Any, results: Sequence[Any]) -> None:
    """Let others use new results instead of an op's, and erase it."""
    for number, (old, new) in enumerate(zip(op.results, results, strict=True)):
        if new is not None:
            old.replace_all_uses_with(new)
        elif is_used(old):
            raise RefusedError(f"gives scores or their sums as result {number + 1}, which is used")
    op.erase()
