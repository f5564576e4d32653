"""GGUF files of language models: the products of their matrices, and quantised weights as operands.

A file has a header, keys with values, a record for each tensor, and after padding the tensors.
Rows of a matrix lie along the reduction, so that products have `transpose_b`. Blocks of `Q4_0` and
`Q8_0` hold 32 elements of a row: a scale in f16, then 16 bytes (element `i` in the lower, `i + 16`
in the upper half) or 32 signed bytes. Format: github.com/ggml-org/ggml, docs/gguf.md.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewise.errors import BadInputError
from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem import Matmul, Problem
from tilewise.kernels.quoting import quoted

Array = NDArray[Any]
MAGIC = b"GGUF"
VERSIONS = (2, 3)
BLOCK = 32
MOST_AXES = 4
_ALIGNMENT = "general.alignment"
_LEAST_RECORD = 8 + 4 + 4 + 8
_NUMBERS = dict(zip((*range(8), 10, 11, 12), "BbHhIifBQqd", strict=True))
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True)
class TensorKind:
    """A type of tensors: the bytes of a block of elements, and the keys of its products."""

    name: str
    block: int
    bytes: int
    keys: dict[str, Any]


KINDS = {
    0: TensorKind("F32", 1, 4, {"dtype": "f32"}),
    1: TensorKind("F16", 1, 2, {"dtype": "f16"}),
    2: TensorKind("Q4_0", BLOCK, 18, {"b": "i4", "group": BLOCK, "scale": "f16"}),
    8: TensorKind("Q8_0", BLOCK, 34, {"b": "i8", "group": BLOCK, "scale": "f16"}),
    30: TensorKind("BF16", 1, 2, {"dtype": "bf16"}),
}
"""Types by GGUF's number; products of others are not known."""
OTHERS = {3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K",
          13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 20: "IQ4_NL", 23: "IQ4_XS", 39: "MXFP4"}  # fmt: skip
TABLES = ("position_embd.weight", "token_types.weight", "per_layer_token_embd.weight",
          "attn_rel_b.weight")  # fmt: skip
FILTERS = ("ssm_conv1d.weight", "shortconv.conv.weight", "ssm_a", "ssm_d", "_norm.weight",
           "time_mix_first.weight", "time_mix_r_k.weight")  # fmt: skip
EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"
"""Without an output of its own, a model multiplies by the embedding."""


@dataclass(frozen=True)
class GgufTensor:
    """A tensor of a file; `shape` has the reduction last, and `start` is its first byte."""

    name: str
    kind: int
    shape: tuple[int, ...]
    start: int

    @property
    def kind_name(self) -> str:
        """Return the name of its type, or the number of an unknown one."""
        known = KINDS.get(self.kind)
        return known.name if known else OTHERS.get(self.kind, f"type {self.kind}")


class GgufFile:
    """The tensors of a GGUF file, in order."""

    def __init__(self, data: Any) -> None:
        """Read the header of a file's bytes; raise BadInputError if it is not well formed."""
        reader = _Reader(data)
        if reader.take(len(MAGIC)) != MAGIC:
            raise BadInputError("this is not a GGUF file: it does not begin with GGUF")
        (version,) = reader.numbers("I")
        if version not in VERSIONS:
            raise BadInputError(f"GGUF version {version}; 2 and 3 are read, little-endian")
        tensors, keys = reader.numbers("QQ")
        alignment = 32
        for _ in range(reader.checked(keys, 8 + 4)):
            name = reader.text()
            value = reader.value()
            alignment = value if name == _ALIGNMENT else alignment
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            raise BadInputError(f"{_ALIGNMENT} is {quoted(alignment)}, no number of bytes")
        records = [reader.record() for _ in range(reader.checked(tensors, _LEAST_RECORD))]
        first = -(-reader.at // alignment) * alignment
        self._data = data
        self.tensors = tuple(
            GgufTensor(name, kind, shape, first + offset) for name, kind, shape, offset in records
        )
        self._by_name = {one.name: one for one in self.tensors}
        for one in self.tensors:
            self._bytes(one)

    @classmethod
    def open(cls, path: str | Path) -> "GgufFile":
        """Map a file into memory, and read its header."""
        if not Path(path).stat().st_size:
            raise BadInputError("this is not a GGUF file: it is empty")
        return cls(np.memmap(path, np.uint8, "r"))

    def problems(self, rows: int = 1) -> Iterator[tuple[GgufTensor, Problem | str]]:
        """Yield each tensor of several axes with its product by `rows` rows, or why it has none."""
        for one in self.tensors:
            if len(one.shape) > 1:
                yield one, self._problem(one, rows)

    def _problem(self, tensor: GgufTensor, rows: int) -> Problem | str:
        if len(tensor.shape) != 2:
            return f"has {len(tensor.shape)} axes, and a matrix has two"
        if tensor.kind not in KINDS:
            return (
                f"is of {tensor.kind_name}; known are {', '.join(k.name for k in KINDS.values())}"
            )
        has_output = OUTPUT in self._by_name or "token_types.weight" in self._by_name  # or BERT
        if tensor.name.endswith(TABLES) or (tensor.name == EMBEDDING and has_output):
            return "is a table from which rows are read"
        if tensor.name.endswith(FILTERS):
            return "is multiplied element by element"
        n, k = tensor.shape
        keys = {"dtype": "f32", **KINDS[tensor.kind].keys}
        try:
            return Matmul(m=rows, n=n, k=k, transpose_b=True, weights="constant", **keys)
        except ProblemError as error:
            return str(error)

    def operands(self, name: str) -> dict[str, Array]:
        """Return `B` [n, k] and `scale_b` [n, k / 32] of a quantised matrix, as in its problem.

        Codes are int8, one in a byte, also those of 4 bits; scales are float16. Raise BadInputError
        for a tensor of another name or type.
        """
        tensor = self._by_name.get(name)
        if tensor is None:
            raise BadInputError(f"the file has no tensor {quoted(name)}")
        kind = KINDS.get(tensor.kind)
        if kind is None or kind.block != BLOCK or len(tensor.shape) != 2:
            raise BadInputError(
                f"{quoted(name)} is no matrix of Q4_0 or Q8_0, but {tensor.kind_name}"
            )
        blocks = self._bytes(tensor).reshape(*tensor.shape[:-1], -1, kind.bytes)
        scales = np.ascontiguousarray(blocks[..., :2]).view("<f2")[..., 0]
        codes = blocks[..., 2:]
        if kind.name == "Q4_0":
            halves = np.concatenate([codes & 15, codes >> 4], axis=-1)
            codes = halves.astype(np.int8) - np.int8(8)
        return {
            "B": np.ascontiguousarray(codes).view(np.int8).reshape(tensor.shape),
            "scale_b": scales.astype(np.float16),
        }

    def _bytes(self, tensor: GgufTensor) -> Array:
        """Return the bytes of a tensor of a known type, all of which are in the file."""
        kind = KINDS.get(tensor.kind)
        if kind is None:
            return np.empty(0, np.uint8)
        if tensor.shape[-1] % kind.block:
            raise BadInputError(f"rows of {quoted(tensor.name)} have {tensor.shape[-1]} elements, "
                                f"and blocks of {kind.name} {kind.block}")  # fmt: skip
        size = prod(tensor.shape) // kind.block * kind.bytes
        if tensor.start + size > len(self._data):
            raise BadInputError(f"{quoted(tensor.name)} ends behind the end of the file")
        return np.frombuffer(self._data, np.uint8, size, tensor.start)


class _Reader:
    """Reads the header, and raises BadInputError instead of reading behind the end."""

    def __init__(self, data: Any) -> None:
        self._data, self.at = memoryview(data), 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        if size > len(self._data) - self.at:
            raise BadInputError("the GGUF file ends inside of its header")
        self.at += size
        return bytes(self._data[self.at - size : self.at])

    def numbers(self, form: str) -> tuple[Any, ...]:
        """Return the next numbers of a format of `struct`, little-endian without gaps."""
        return struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}")))

    def checked(self, count: int, least: int) -> int:
        """Return a count of entries, each of at least so many bytes."""
        if count > (len(self._data) - self.at) // least:
            raise BadInputError(f"the GGUF file is too short for {count} entries")
        return count

    def text(self) -> str:
        """Return the next string."""
        (size,) = self.numbers("Q")
        return self.take(size).decode(errors="backslashreplace")

    def value(self) -> Any:
        """Return the next value with its type; None for an array, which is skipped."""
        (kind,) = self.numbers("I")
        return self._skipped_array() if kind == _ARRAY else self._of(kind)

    def _of(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind not in _NUMBERS:
            raise BadInputError(f"the GGUF file has a value of type {kind}, which is not known")
        return self.numbers(_NUMBERS[kind])[0]

    def _skipped_array(self) -> None:
        kind, count = self.numbers("IQ")
        if kind in _NUMBERS:
            self.take(self.checked(count, 1) * struct.calcsize(f"<{_NUMBERS[kind]}"))
            return
        for _ in range(self.checked(count, 8)):
            self._of(kind)

    def record(self) -> tuple[str, int, tuple[int, ...], int]:
        """Return the next tensor's name, type, shape with the reduction last, and offset."""
        name = self.text()
        (axes,) = self.numbers("I")
        if not 1 <= axes <= MOST_AXES:
            raise BadInputError(f"{quoted(name)} has {axes} axes; 1 to {MOST_AXES} are read")
        sizes = self.numbers(f"{axes}Q")
        kind, offset = self.numbers("IQ")
        if 0 in sizes:
            raise BadInputError(f"{quoted(name)} has an axis without elements")
        return name, kind, tuple(reversed(sizes)), offset
