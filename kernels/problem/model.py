"""`Matmul`: frozen, validated, with flops and bytes."""

from dataclasses import dataclass
from typing import ClassVar

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.keys import BF16X3, STORED, DType
from tilewise.kernels.problem.weights import ACTIVATIONS, CODES, SMALLEST_BLOCK, QuantisedWeights


def _is_group(size: int) -> bool:
    """Return whether groups may have so many elements: a power of two."""
    return size >= SMALLEST_BLOCK and size & (size - 1) == 0


@dataclass(frozen=True, kw_only=True)
class Matmul(Problem):
    """C[m,n] = A[m,k] B[k,n], for each of `batch`; bias[n] is added, then the epilogue applied.

    With `transpose_a` A is stored as [k,m], with `transpose_b` B as [n,k];
    `init=accumulate` adds to what C holds; `add` adds another tensor of the shape and type of C,
    such as a residual, before the epilogue. `out` is the type of C, to which results are rounded
    once, after the epilogue; for i8 and u8, `requant` says whether C or each of its columns has a
    scale, by which sums are multiplied before a zero point is added. `accuracy` is as for `Conv2d`.
    `dtype` is the type of A, and of B unless `b` is another one. `zero` names the factors that have
    a zero point, an operand of one i32 within the limits of the factor's type. It is subtracted
    from their elements before they are multiplied, and stands for padding.

    With `b` and `group` constant weights are quantised (`tilewise.kernels.problem.weights`):
    `group` elements of the reduction, a power of two from 16 on or all `k`, share a `scale`, and
    with `zero_b` a zero point. `a=dynamic_i8` lets kernels round A to i8, each block of at most 128
    elements with its own scale; else bf16 keeps 16 bits below the largest element of its block, and
    f32 keeps 24.
    """

    op: ClassVar[str] = "matmul"

    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        **Problem.choices,
        "a": ("dynamic_i8",),
        "b": ("i8", "u8", "i4"),
        "scale": ("f32", "f16", "bf16"),
        "zero_b": ("none", "u4", "u8"),
    }

    batch: int = 1
    m: int
    n: int
    k: int
    dtype: str
    b: str = ""
    group: int | str = ""
    scale: str = ""
    zero_b: str = ""
    a: str = ""
    zero: str = ""
    out: str = ""
    transpose_a: bool = False
    transpose_b: bool = False
    init: str = "zero"
    bias: bool = False
    add: bool = False
    epilogue: str = "none"
    requant: str = ""
    weights: str = "variable"
    accuracy: str = "standard"

    def _check_factors(self) -> None:
        if self.group != "" or self.b == "i4" or (self.b and self.dtype in ACTIVATIONS):
            self._check_weights()
            return
        super()._check_factors()
        for key in ("scale", "zero_b", "a"):
            if getattr(self, key):
                raise ProblemError(f"matmul: {key} is for quantised weights; give b and group", key)

    def _check_weights(self) -> None:
        """Fill in what is implied for quantised weights; raise for what they do not go with."""
        if self.dtype not in ACTIVATIONS or self.b not in CODES:
            raise ProblemError(
                f"matmul: quantised weights have dtype={' or '.join(ACTIVATIONS)} and "
                f"b={' or '.join(CODES)}; found dtype={self.dtype} and b={self.b or 'none'}",
                "b" if self.dtype in ACTIVATIONS else "dtype",
            )
        if self.group == "":
            raise ProblemError(
                f"matmul: b={self.b} with dtype={self.dtype} needs group, such as group=32 or "
                "group=k for one scale per column",
                "group",
            )
        if not self.has_constant_weights:
            why = "matmul: quantised weights are packed ahead; give weights=constant"
            raise ProblemError(why, "weights")
        others = {
            "accuracy": self.accuracy == BF16X3,
            "zero": bool(self.zero),
            "transpose_a": self.transpose_a,
            "batch": self.batch > 1,
        }
        if key := next((key for key, is_given in others.items() if is_given), None):
            raise ProblemError(
                f"matmul: quantised weights go with rows of one matrix A; leave out {key}", key
            )
        zero = "" if self.zero_b == "none" else self.zero_b
        if zero not in ("", CODES[self.b][1]):
            raise ProblemError(
                f"matmul: zero points of b={self.b} are {CODES[self.b][1]}, not {zero}", "zero_b"
            )
        is_whole = isinstance(self.group, int) and self.group >= self.k
        object.__setattr__(self, "group", "k" if is_whole else self.group)
        object.__setattr__(self, "scale", self.scale or "f32")
        object.__setattr__(self, "zero_b", zero)

    def _why_not(self, name: str, value: object, *, is_flag: bool) -> str | None:
        if name != "group":
            return super()._why_not(name, value, is_flag=is_flag)
        if value in ("", "k") or (type(value) is int and _is_group(value)):
            return None
        return f"is no power of two from {SMALLEST_BLOCK} on, nor k"

    @property
    def element_b(self) -> DType:
        """Return the element type of B: that of A, unless `b` says another one."""
        weights = self.quantised_weights
        return STORED[weights.codes] if weights else super().element_b

    @property
    def quantised_weights(self) -> QuantisedWeights | None:
        """Return how B is stored where it is quantised and A is not; None for any other B."""
        if self.group == "":
            return None
        return QuantisedWeights(
            codes=CODES[self.b][bool(self.zero_b)],
            bits=int(self.b[1:]),
            depth=self.k,
            group=self.k if self.group == "k" else int(self.group),
            scale=self.scale,
            zero=self.zero_b,
            is_transposed=self.transpose_b,
            quantises_a=bool(self.a),
        )

    @property
    def as_matmul(self) -> "Matmul":
        """Return this product of matrices."""
        return self

    @property
    def flops(self) -> int:
        """Return the multiplications and additions, without bias and epilogue."""
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def main_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of A, B and C as stored."""
        lead = (self.batch,) if self.batch > 1 else ()
        return {
            "A": lead + ((self.k, self.m) if self.transpose_a else (self.m, self.k)),
            "B": lead + ((self.n, self.k) if self.transpose_b else (self.k, self.n)),
            "C": (*lead, self.m, self.n),
        }
