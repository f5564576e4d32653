"""`Matmul` and `Conv2d`: frozen, validated, with flops and bytes."""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.window import Pads, pads, pair


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
    """

    op: ClassVar[str] = "matmul"

    batch: int = 1
    m: int
    n: int
    k: int
    dtype: str
    b: str = ""
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
