"""`Conv2d` and `Conv3d`: convolutions of images and of volumes, frozen and validated."""

from dataclasses import dataclass, fields, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tilewise.kernels.errors import ProblemError
from tilewise.kernels.problem.base import Problem
from tilewise.kernels.problem.model import Matmul
from tilewise.kernels.problem.spatial import Pads, pads, spread


@dataclass(frozen=True, kw_only=True)
class Convolution(Problem):
    """A convolution over any number of spatial axes, which `axes` names in the order of strides.

    Its keys have the size of the image along each axis, and `k` and the axis the filter's.
    """

    if TYPE_CHECKING:  # keys of every convolution
        n: int
        h: int
        w: int
        ci: int
        co: int
        kh: int
        kw: int
        stride: int | str
        dilation: int | str
        pad: int | str
        layout: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.accumulates and self.groups > 1:
            raise ProblemError(
                f"{self.op}: init=accumulate is for groups=1, not groups={self.groups}; "
                "give init=zero, and add afterwards",
                "init",
            )
        for channels in ("ci", "co"):
            if getattr(self, channels) % self.groups:
                raise ProblemError(
                    f"{self.op}: groups={self.groups} does not divide "
                    f"{channels}={getattr(self, channels)}",
                    "groups",
                )
        for axis, padded, reach in zip(self.axes, self.padded, self.reaches, strict=True):
            if reach > padded:
                kernel = f"k{axis}"
                raise ProblemError(
                    f"{self.op}: {kernel}={getattr(self, kernel)} with dilation={self.dilation} "
                    f"spans {reach}, but {axis}={getattr(self, axis)} with pad={self.pad} "
                    f"has only {padded}",
                    kernel,
                )

    @property
    def has_channels_first(self) -> bool:
        """Return whether the layout has a plane, or a volume, for each channel."""
        return self.layout == self.choices["layout"][1]

    @property
    def image(self) -> tuple[int, ...]:
        """Return the size of the image along each axis, without padding."""
        return tuple(getattr(self, axis) for axis in self.axes)

    @property
    def padded(self) -> tuple[int, ...]:
        """Return the size of the image along each axis with its padding of zeros."""
        return tuple(map(sum, zip(self.image, self.pads.low, self.pads.high, strict=True)))

    @property
    def strides(self) -> tuple[int, ...]:
        """Return the pixels of the image between outputs, along each axis."""
        return spread(self.stride, len(self.axes))

    @property
    def dilations(self) -> tuple[int, ...]:
        """Return the pixels of the image between taps, along each axis."""
        return spread(self.dilation, len(self.axes))

    @property
    def pads(self) -> Pads:
        """Return the zeros around the image."""
        return pads(self.pad, len(self.axes))

    @property
    def reaches(self) -> tuple[int, ...]:
        """Return the pixels of the image that an output reads from, gaps included."""
        steps = zip(self.dilations, self.window, strict=True)
        return tuple(dilation * (taps - 1) + 1 for dilation, taps in steps)

    @property
    def spatial_axes(self) -> tuple[int, ...]:
        """Return the spatial axes in the shapes of image and result."""
        first = 2 if self.has_channels_first else 1
        return tuple(range(first, first + len(self.axes)))

    def stored_as(self, *, channels_first: bool, pad: int | str) -> Self:
        """Return the same convolution in this layout, all padding but `pad` in the image."""
        stored = pads(pad, len(self.axes))
        sides = zip(self.axes, self.padded, stored.low, stored.high, strict=True)
        image: dict[str, Any] = {axis: size - low - high for axis, size, low, high in sides}
        layout = self.choices["layout"][channels_first]
        return replace(self, **image, pad=pad, layout=layout)

    @property
    def window(self) -> tuple[int, ...]:
        """Return the taps of the filter along each axis."""
        return tuple(getattr(self, f"k{axis}") for axis in self.axes)

    @property
    def as_matmul(self) -> Matmul | None:
        """Return the product of matrices that has the same arrays, of single pixels in nhwc."""
        is_of_pixels = {*self.window, *self.strides} == {1} and not self.is_padded
        if not is_of_pixels or self.groups > 1 or self.has_channels_first:
            return None
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        shared = {field.name: own[field.name] for field in fields(Matmul) if field.name in own}
        return Matmul(**shared | {"m": self.n * prod(self.image), "n": self.co, "k": self.ci})

    @property
    def outputs(self) -> tuple[int, ...]:
        """Return the size of the result along each axis."""
        sides = zip(self.padded, self.reaches, self.strides, strict=True)
        return tuple((padded - reach) // stride + 1 for padded, reach, stride in sides)

    @property
    def oh(self) -> int:
        """Return the output height."""
        return self.outputs[-2]

    @property
    def ow(self) -> int:
        """Return the output width."""
        return self.outputs[-1]

    @property
    def flops(self) -> int:
        """Return the multiplications and additions, without bias and epilogue."""
        taps = prod(self.window) * self.ci // self.groups
        return 2 * self.n * prod(self.outputs) * self.co * taps

    @property
    def main_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of A, B and C as stored."""
        n, ci, co, inputs = self.n, self.ci, self.co, self.ci // self.groups
        if self.has_channels_first:
            return {
                "A": (n, ci, *self.image),
                "B": (co, inputs, *self.window),
                "C": (n, co, *self.outputs),
            }
        return {
            "A": (n, *self.image, ci),
            "B": (*self.window, inputs, co),
            "C": (n, *self.outputs, co),
        }


@dataclass(frozen=True, kw_only=True)
class Conv2d(Convolution):
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
    axes: ClassVar[str] = "hw"
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


@dataclass(frozen=True, kw_only=True)
class Conv3d(Convolution):
    """Three-dimensional convolution (cross-correlation) of volumes, such as videos.

    `d`, `h`, `w` are the volume without padding. `stride` and `dilation` are a number, or DxHxW for
    slices, rows and columns; `pad` is a number, DxHxW, or FRONTxTOPxLEFTxBACKxBOTTOMxRIGHT. In
    `ndhwc_dhwcf` the volume is [n,d,h,w,ci], the filter [kd,kh,kw,ci,co], the result
    [n,od,oh,ow,co]; in `ncdhw_fcdhw` they are [n,ci,d,h,w], [co,ci,kd,kh,kw], [n,co,od,oh,ow].
    Other keys are those of `Conv2d`; there are no groups, and all methods are direct.
    """

    op: ClassVar[str] = "conv3d"
    axes: ClassVar[str] = "dhw"
    choices: ClassVar[dict[str, tuple[str, ...]]] = {
        **Problem.choices,
        "layout": ("ndhwc_dhwcf", "ncdhw_fcdhw"),
    }

    n: int
    d: int
    h: int
    w: int
    ci: int
    co: int
    kd: int
    kh: int
    kw: int
    stride: int | str = 1
    dilation: int | str = 1
    pad: int | str = 0
    layout: str = "ndhwc_dhwcf"
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
