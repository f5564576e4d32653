"""The base of all problems: a frozen, validated value with one canonical string."""

import hashlib
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from math import prod
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem.keys import BF16X3, DTYPES, EPILOGUES, STORED, DType, Epilogue
from tilewise.kernels.problem.spatial import FORMS, Pads, canonical, sizes_of
from tilewise.kernels.problem.weights import QuantisedWeights
from tilewise.kernels.quoting import quoted

_BYTES = ("i8", "u8")
_EMPTY = ("a", "b", "scale", "zero_b", "zero", "out", "requant")
"""Keys whose empty value means what `dtype` implies."""
_WEIGHTS = ("B", "scale_b", "zero_b")
LARGEST_DIM = 2**31 - 1
JsonValue = str | int | bool
Accuracy = Literal["standard", "strict"]
"""How a result may be rounded; `Conv2d` says what each allows."""
ACCURACIES: tuple[Accuracy, ...] = get_args(Accuracy)


@dataclass(frozen=True, kw_only=True)
class Problem(ABC):
    """What all operations share: canonical string, key, and derived sizes.

    Field order is the canonical key order; fields at their defaults are left out.
    """

    if TYPE_CHECKING:  # keys of every operation: fields where its canonical string has them
        dtype: str
        init: str
        bias: bool
        epilogue: str
        weights: str
        accuracy: str

    # What an operation without the key has.
    b = ""
    zero = ""
    out = ""
    add = False
    requant = ""
    transpose_a = False
    transpose_b = False
    groups = 1

    op: ClassVar[str]
    axes: ClassVar[str] = ""
    """The spatial axes of the image, by a letter each, the contiguous one last."""
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "dtype": tuple(DTYPES),
        "b": _BYTES,
        "zero": ("a", "b", "ab"),
        "out": ("f32", "bf16", "f16", "i8", "u8"),
        "requant": ("tensor", "channel"),
        "init": ("zero", "accumulate"),
        "epilogue": tuple(EPILOGUES),
        "weights": ("variable", "constant"),
        "accuracy": (*ACCURACIES, BF16X3),
    }

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in FORMS:
                numbers = sizes_of(field.name, value, self.op, self.axes)
                object.__setattr__(self, field.name, canonical(numbers))
                continue
            why = self._why_not(field.name, value, is_flag=field.type is bool)
            if why is not None:
                raise ProblemError(f"{self.op}: {field.name}={quoted(value)} {why}", field.name)
        self._check_accuracy()
        self._check_factors()
        self._check_result()
        if self.add and self.accumulates:
            raise ProblemError(
                f"{self.op}: add and init=accumulate both add a tensor of the result's shape; "
                "give one of them",
                "add",
            )
        if self.function.is_smooth and self.element.accumulator != "f32":
            raise ProblemError(
                f"{self.op}: epilogue={self.epilogue} is computed of sums in f32, and those of "
                f"dtype={self.dtype} are {self.element.accumulator}; give dtype=f32, bf16 or f16",
                "epilogue",
            )
        if self.function.needs_float and not self.element.is_float:
            raise ProblemError(
                f"{self.op}: epilogue={self.epilogue} needs a dtype of floats, and "
                f"{self.element.name} is none; give epilogue=relu",
                "epilogue",
            )

    def _check_accuracy(self) -> None:
        if self.accuracy == BF16X3 and self.dtype != "f32":
            raise ProblemError(
                f"{self.op}: accuracy={BF16X3} is for dtype=f32, not {self.dtype}; leave it out",
                "accuracy",
            )

    def _check_factors(self) -> None:
        """Leave out the type of B that the dtype implies; raise for bytes with wider ones."""
        if self.b == self.dtype:
            object.__setattr__(self, "b", "")
        for key in ("b", "zero"):
            if getattr(self, key) and self.dtype not in _BYTES:
                raise ProblemError(
                    f"{self.op}: {key}={getattr(self, key)} is for dtype=i8 and u8, "
                    f"not {self.dtype}; leave it out",
                    key,
                )

    def _check_result(self) -> None:
        """Leave out the result type that the dtype implies; raise for one that no kernel stores."""
        if self.out == self.element.accumulator:
            object.__setattr__(self, "out", "")
        if self.requant or self.out in _BYTES:
            self._check_requant()
            return
        is_half = self.element.is_float and self.element.bytes < self.element.accumulator_bytes
        if self.out and not is_half:
            raise ProblemError(
                f"{self.op}: out={self.out} is for dtype=bf16 and f16, and dtype={self.dtype}; "
                f"leave it out, for results of {self.element.accumulator}",
                "out",
            )

    def _check_requant(self) -> None:
        if not self.requant or self.out not in _BYTES or self.element.accumulator != "i32":
            raise ProblemError(
                f"{self.op}: requant=tensor or channel goes with out=i8 or u8 and sums of i32; "
                f"found requant={self.requant or 'none'}, out={self.out or 'none'} and "
                f"dtype={self.dtype}",
                "requant" if self.requant else "out",
            )
        if self.add or self.accumulates:
            raise ProblemError(
                f"{self.op}: requant={self.requant} takes sums of products and a bias; leave out "
                f"{'add' if self.add else 'init=accumulate'}",
                "add" if self.add else "init",
            )

    def _why_not(self, name: str, value: object, *, is_flag: bool) -> str | None:
        if name in self.choices:
            allowed = self.choices[name]
            is_implied = name in _EMPTY and value == ""
            return None if is_implied or value in allowed else f"is not one of {', '.join(allowed)}"
        if is_flag:
            return None if isinstance(value, bool) else "is not true or false"
        if isinstance(value, bool) or not isinstance(value, int):
            is_range = isinstance(value, str) and re.fullmatch(r"\d+\.\.\d+(:\d+)?", value)
            return "is a range; give one size here" if is_range else "is not a whole number"
        is_in_range = 1 <= value <= LARGEST_DIM
        return None if is_in_range else f"is out of range; give 1 to {LARGEST_DIM}"

    @property
    def element(self) -> DType:
        """Return the element type of A, which decides that of sums."""
        return DTYPES[self.dtype]

    @property
    def element_b(self) -> DType:
        """Return the element type of B: that of A, unless `b` says another one."""
        return STORED[self.b or self.dtype]

    @property
    def result(self) -> DType:
        """Return the result's element type: the accumulator's, unless `out` says another one."""
        return STORED[self.out or self.element.accumulator]

    @property
    def extras(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the operands besides A, B and C, in the order of calls."""
        channels: tuple[int, ...] = (self.channels,)
        shapes: dict[str, tuple[int, ...]] = {}
        if weights := self.quantised_weights:
            own = (weights.groups, *channels)
            shapes["scale_b"] = own[::-1] if weights.is_transposed else own
            shapes |= {"zero_b": shapes["scale_b"]} if weights.zero else {}
        if self.has_bias:
            shapes["bias"] = channels
        if self.add:
            shapes["add"] = self.main_shapes["C"]
        if self.requant:
            shapes["scale_c"] = channels if self.requant == "channel" else (1,)
            shapes["zero_c"] = (1,)
        return shapes | {f"zero_{factor}": (1,) for factor in self.zero}

    def type_of(self, operand: str) -> str:
        """Return an operand's element type: a bias has that of sums, what is added the result's."""
        own = {"A": self.element.name, "B": self.element_b.name, "scale_c": "f32"}
        own |= dict.fromkeys(("C", "add"), self.result.name)
        if weights := self.quantised_weights:
            own |= {"scale_b": weights.scale, "zero_b": weights.zero}
        return own.get(operand, self.element.accumulator)

    @property
    def channels(self) -> int:
        """Return the columns or output channels, each of which has a bias."""
        return self.main_shapes["C"][1 if self.has_channels_first else -1]

    def to_json(self) -> dict[str, JsonValue]:
        """Return the JSON form: `op` and every key that is not at its default."""
        out: dict[str, JsonValue] = {"op": self.op}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                out[field.name] = value
        return out

    @property
    def canonical(self) -> str:
        """Return the one string of this problem, such as `matmul:m=4,n=4,k=4,dtype=f32`."""
        pairs = [
            key if value is True else f"{key}={value}"
            for key, value in self.to_json().items()
            if key != "op"
        ]
        return f"{self.op}:{','.join(pairs)}"

    @property
    def key(self) -> str:
        """Return the SHA-256 of the canonical string, hex."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()

    def __str__(self) -> str:
        return self.canonical

    @property
    @abstractmethod
    def flops(self) -> int:
        """Return the multiplications and additions, without bias and epilogue."""

    @property
    @abstractmethod
    def main_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes, as stored, of A (the image), B (the filter) and C."""

    @property
    def operand_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes, as stored, of all operands and of C."""
        return self.main_shapes | self.extras

    @property
    def quantised_weights(self) -> QuantisedWeights | None:
        """Return how B is stored where it is quantised and A is not; None for any other B."""
        return None

    @property
    def constants(self) -> tuple[str, ...]:
        """Return the operands that stay what they are from one run to the next: weights, if any."""
        if not self.has_constant_weights:
            return ()
        names = _WEIGHTS if self.quantised_weights else ("B",)
        return tuple(name for name in names if name in self.operand_shapes)

    @property
    def as_matmul(self) -> "Problem | None":
        """Return the product of matrices that has the same arrays; None where there is no other."""
        return None

    @property
    def accumulates(self) -> bool:
        """Return whether the result is added to what C holds, instead of taking its place."""
        return self.init == "accumulate"

    @property
    def has_bias(self) -> bool:
        """Return whether `bias` is added to the sums, one value per column or output channel."""
        return self.bias

    @property
    def function(self) -> Epilogue:
        """Return the declaration of the epilogue."""
        return EPILOGUES[self.epilogue]

    @property
    def has_relu(self) -> bool:
        """Return whether the result is cut off below zero."""
        return self.function.is_relu

    @property
    def ceiling(self) -> int | None:
        """Return what the result is cut off above, after relu; None for no limit."""
        return self.function.ceiling

    @property
    def has_constant_weights(self) -> bool:
        """Return whether B (the filter) stays what it is from one run to the next."""
        return self.weights == "constant"

    @property
    def keeps_panels(self) -> bool:
        """Return whether panels of B serve all runs: each run gives a zero point anew."""
        return self.has_constant_weights and "b" not in self.zero

    @property
    def is_strict(self) -> bool:
        """Return whether only direct methods may compute it, whose rounding every user expects."""
        return self.accuracy == "strict"

    @property
    def has_channels_first(self) -> bool:
        """Return whether images are stored plane by plane, a channel after the other."""
        return False

    @property
    def window(self) -> tuple[int, ...]:
        """Return the rows and columns of the filter; one of each without a filter."""
        return 1, 1

    @property
    def spatial_axes(self) -> tuple[int, ...]:
        """Return the axes of rows and columns of image and result; none without an image."""
        return ()

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the pixels of the image between outputs, down and across."""
        return 1, 1

    @property
    def dilations(self) -> tuple[int, ...]:
        """Return the pixels of the image between taps, down and across."""
        return 1, 1

    @property
    def pads(self) -> Pads:
        """Return the zeros around the image."""
        return Pads((0, 0, 0, 0))

    @property
    def is_padded(self) -> bool:
        """Return whether there are zeros around the image."""
        return any(self.pads)

    @property
    def padding(self) -> tuple[list[int], list[int]]:
        """Return the zeros before and behind each axis of the image."""
        low, high = iter(self.pads.low), iter(self.pads.high)
        axes = range(len(self.operand_shapes["A"]))
        sides = [(next(low), next(high)) if axis in self.spatial_axes else (0, 0) for axis in axes]
        return [side[0] for side in sides], [side[1] for side in sides]

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """Return the shape of `A` with the zeros around it, in the order in which it is stored."""
        return tuple(map(sum, zip(self.operand_shapes["A"], *self.padding, strict=True)))

    @property
    def depth(self) -> int:
        """Return how many products are summed to an element of the result."""
        return self.flops // (2 * prod(self.operand_shapes["C"]))

    def stored_as(self, *, channels_first: bool, pad: "int | str") -> "Problem":
        """Return the same computation on images of this layout that store all padding but `pad`.

        Raise ProblemError if the stored image is too large.
        """
        return self

    @property
    def bytes(self) -> int:
        """Return the bytes of all operands and the result as stored, each counted once.

        That is the least that a run reads and writes. An image's padding is not stored;
        `tilewise.kernels.footprint.working_bytes` counts it, and all other memory.
        """
        weights, shapes = self.quantised_weights, self.operand_shapes
        stored = 0 if weights is None else weights.bytes(self.channels)
        counted = shapes.keys() - (_WEIGHTS if weights else ())
        return stored + sum(
            STORED[self.type_of(name)].bytes * prod(shapes[name]) for name in counted
        )
