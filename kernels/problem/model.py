"""`Matmul` and `Conv2d`: frozen, validated, with flops and bytes."""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.keys import BF16X3, STORED, DType
from tilewise.kernels.problem.spatial import Pads, pads, pair
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


@dataclass(frozen=True, kw_only=True)
class Conv2d(Problem):
    """Two-dimensional convolution (cross-correlation, as in every framework).

    `h`, `w` are the image without padding. `stride` and `dilation` are a number, or HxW for rows
    and columns; `pad` is a number, HxW, or TOPxLEFTxBOTTOMxRIGHT. In `nhwc_hwcf` the image is
    [n,h,w,ci], the filter [kh,kw,ci/groups,co], the result [n,oh,ow,co];
    in `nchw_fchw` they are [n,ci,h,w], [co,ci/groups,kh,kw], [n,co,oh,ow].
    `init=accumulate` adds to what the result holds before the epilogue, as a residual addition
    does; for one group, since kernels of small groups compute some outputs twice.
    With `accuracy=standard` the rms error may be up to 4 times that of the direct method
    (`tilewise.kernels.oracle.accuracy`); `strict` allows direct methods alone.
    """

    op: ClassVar[str] = "conv2d"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        **Problem.choices,
        "layout": ("nhwc_hwcf", "nchw_fchw"),
    }

    n: int
    h: int
    w: int
    ci: int
    co: int
    kh: int
    kw: int
    stride: int | str = 1
    dilation: int | str = 1
    pad: int | str = 0
    groups: int = 1
    layout: str = "nhwc_hwcf"
    dtype: str
    b: str = ""
    zero: str = ""
    out: str = ""
    init: str = "zero"
    bias: bool = False
    add: bool = False
    epilogue: str = "none"
    requant: str = ""
    weights: str = "variable"
    accuracy: str = "standard"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accumulates and self.groups > 1:
            raise ProblemError(
                f"conv2d: init=accumulate is for groups=1, not groups={self.groups}; "
                "give init=zero, and add afterwards",
                "init",
            )
        for channels in ("ci", "co"):
            if getattr(self, channels) % self.groups:
                raise ProblemError(
                    f"conv2d: groups={self.groups} does not divide "
                    f"{channels}={getattr(self, channels)}",
                    "groups",
                )
        sides = zip(("h", "w"), ("kh", "kw"), self.padded, self.reaches, strict=True)
        for image, kernel, padded, reach in sides:
            if reach > padded:
                raise ProblemError(
                    f"conv2d: {kernel}={getattr(self, kernel)} with dilation={self.dilation} "
                    f"spans {reach}, but {image}={getattr(self, image)} with pad={self.pad} "
                    f"has only {padded}",
                    kernel,
                )

    @property
    def has_channels_first(self) -> bool:
        """Return whether the layout is `nchw_fchw`."""
        return self.layout == "nchw_fchw"

    @property
    def padded(self) -> tuple[int, int]:
        """Return the height and width of the image with its padding of zeros."""
        pads = self.pads
        return self.h + pads.top + pads.bottom, self.w + pads.left + pads.right

    @property
    def strides(self) -> tuple[int, int]:
        """Return the pixels of the image between outputs, down and across."""
        return pair(self.stride)

    @property
    def dilations(self) -> tuple[int, int]:
        """Return the pixels of the image between taps, down and across."""
        return pair(self.dilation)

    @property
    def pads(self) -> Pads:
        """Return the zeros around the image."""
        return pads(self.pad)

    @property
    def reaches(self) -> tuple[int, int]:
        """Return the lines and pixels of the image that an output reads from, gaps included."""
        down, across = self.dilations
        return down * (self.kh - 1) + 1, across * (self.kw - 1) + 1

    @property
    def spatial_axes(self) -> tuple[int, ...]:
        """Return the axes of rows and columns in the shapes of image and result."""
        return (2, 3) if self.has_channels_first else (1, 2)

    def stored_as(self, *, channels_first: bool, pad: int | str) -> "Conv2d":
        """Return the same convolution in this layout, all padding but `pad` in the image."""
        layout = "nchw_fchw" if channels_first else "nhwc_hwcf"
        height, width = self.padded
        top, left, bottom, right = pads(pad)
        height, width = height - top - bottom, width - left - right
        return replace(self, h=height, w=width, pad=pad, layout=layout)

    @property
    def window(self) -> tuple[int, int]:
        """Return the rows and columns of the filter."""
        return self.kh, self.kw

    @property
    def as_matmul(self) -> Matmul | None:
        """Return the product of matrices that has the same arrays, of single pixels in nhwc."""
        is_of_pixels = self.window == self.strides == (1, 1) and not self.is_padded
        if not is_of_pixels or self.groups > 1 or self.has_channels_first:
            return None
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        shared = {field.name: own[field.name] for field in fields(Matmul) if field.name in own}
        return Matmul(**shared | {"m": self.n * self.h * self.w, "n": self.co, "k": self.ci})

    @property
    def oh(self) -> int:
        """Return the output height."""
        return (self.padded[0] - self.reaches[0]) // self.strides[0] + 1

    @property
    def ow(self) -> int:
        """Return the output width."""
        return (self.padded[1] - self.reaches[1]) // self.strides[1] + 1

    @property
    def flops(self) -> int:
        """Return the multiplications and additions, without bias and epilogue."""
        taps = self.kh * self.kw * self.ci // self.groups
        return 2 * self.n * self.oh * self.ow * self.co * taps

    @property
    def main_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of A, B and C as stored."""
        ci = self.ci // self.groups
        if self.layout == "nhwc_hwcf":
            shapes: dict[str, tuple[int, ...]] = {
                "A": (self.n, self.h, self.w, self.ci),
                "B": (self.kh, self.kw, ci, self.co),
                "C": (self.n, self.oh, self.ow, self.co),
            }
        else:
            shapes = {
                "A": (self.n, self.ci, self.h, self.w),
                "B": (self.co, ci, self.kh, self.kw),
                "C": (self.n, self.co, self.oh, self.ow),
            }
        return shapes
