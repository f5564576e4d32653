"""`winograd`: compute a convolution in tiles, by Winograd transforms."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from tilewise.kernels.fast_algorithms import (
    SIDES,
    STRIDES,
    WinogradTransforms,
    outputs_for,
    winograd_transforms,
)
from tilewise.kernels.nest import Axis, Nest, Operand, Term
from tilewise.kernels.problem import Conv2d, Problem
from tilewise.kernels.problem.spatial import canonical
from tilewise.kernels.steps.algorithm import (
    POINT,
    TILES,
    AlgorithmStep,
    transformed_nest,
    why_no_algorithm,
)
from tilewise.kernels.steps.base import Part, Step, register_step

if TYPE_CHECKING:
    from tilewise.kernels.problem.keys import Array


@register_step
class Winograd(AlgorithmStep):
    """Compute a convolution in tiles of `output` x `output` pixels, by Winograd transforms.

    A 3x3 filter with `output` 4 takes 36 products in place of 144 for each pair of channels. The
    taps are the problem's. Along an axis where the filter has one tap a tile is one pixel wide: of
    a 1x7 filter it has 1 x `output` pixels. A filter of stride 2 is two, one of the even pixels and
    one of the odd ones, along each axis. `tilewise.kernels.fast_algorithms.outputs_for` says
    which outputs a filter has.
    Halide and TVM write it as stages of their own (TVM: topi.nn.conv2d_winograd); transform
    structured.winograd_conv2d and structured.decompose_winograd_op. The native lowering alone:
    upstream's operation takes linalg.conv_2d_nhwc_fhwc alone, and decomposes a channel at a time.

        winograd output=4
        pack operand=B
        tile dim=t size=28
        pack operand=A
        register rows=7 cols=64 outer=cols
    before                          after
        for n, oh, ow, co:              U[point][ci][co] = G w G', for each ci, co
            acc = 0                     for t0 in tiles step 28:
            for kh, kw, ci:                 V[point][t][ci] = B' d B, for each t, ci
                acc += A * B                for co1 in step 64:
            C = acc                             for point in 36, t1 in step 7:
                                                    M[point][t1..][64] = V[point] * U[point]
                                                C = A' M A, bias and relu, for each t, co

    The schedule speaks of other dims from here on: `t` are the tiles of all images, row by row,
    and `point` the (output+kh-1)*(output+kw-1) products of a tile, as many as the pixels that it
    reads with any stride, a matrix product each; `co` and
    `ci` stay. Packing B transforms the filter, packing A the image; both are needed. A filter that
    is constant may have `prefetch operand=B` behind its pack. Tiles
    past the image's end read zeros and are cut when they are written. `nontemporal operand=C` at
    the end writes whole tiles of an nhwc result past the caches.

    Rounding differs from the direct method's, and a NaN or infinity spreads over its tile
    (`tilewise.kernels.fast_algorithms`); problems with accuracy=strict refuse the step.
    """

    name: ClassVar[str] = "winograd"
    choices: ClassVar[tuple[str, ...]] = ("winograd",)
    output: int

    @property
    def size(self) -> int:
        """Return the pixels of a tile along the filter."""
        return self.output

    @property
    def label(self) -> str:
        """Return what users read in tables."""
        return f"winograd F{self.output}"

    @classmethod
    def chosen(cls, choice: str, value: Any, part: Part) -> Iterable[Step]:
        """Return the step of an output."""
        return [cls(value)]

    def check(self, nest: Nest) -> None:
        """Raise unless the convolution's filter and stride have such tiles."""
        why = why_not_winograd(nest.problem)
        if why is None and self.output not in (outputs := outputs_of(nest.problem)):
            of_filter = "of a {}x{} filter".format(*nest.problem.window)
            why = f"output {of_filter} is one of {', '.join(map(str, outputs))}"
        if why is not None:
            raise self.refused(nest, why)

    def apply(self, nest: Nest) -> Nest:
        """Return the nest of products of transformed tiles."""
        problem = nest.problem
        assert isinstance(problem, Conv2d)
        transforms = winograd_transforms(self.output, problem.window, problem.strides[0])
        tiles = WinogradTiles(problem, transforms)
        down, across = tiles_of(problem, tiles.tile)
        extents = {
            POINT: tiles.transforms.products,
            TILES: problem.n * down * across,
            "co": problem.co,
            "ci": problem.ci,
        }
        images = [Axis(size, ()) for size in (problem.n, problem.oh, problem.ow)]
        channels = Axis(problem.co, (Term("co"),))
        nhwc = (*images, channels)
        axes = (images[0], channels, *images[1:]) if problem.has_channels_first else nhwc
        return transformed_nest(nest, tiles, extents, Operand("C", "C", axes))


def tiles_of(problem: Conv2d, output: tuple[int, int]) -> tuple[int, int]:
    """Return the tiles of so many pixels that cover one image's result, down and across."""
    height, width = output
    return -(-problem.oh // height), -(-problem.ow // width)


def outputs_of(problem: Problem) -> tuple[int, ...]:
    """Return the outputs, along the filter, for which its taps and stride have tiles."""
    return outputs_for(problem.window, problem.strides[0])


def why_not_winograd(problem: Problem) -> str | None:
    """Return why no tile of a problem can be computed by Winograd transforms; None where it can."""
    if len(problem.spatial_axes) != len("hw"):
        return "it is no convolution of images"
    if (why := why_no_algorithm(problem)) is not None:
        return why
    taps = "{}x{}".format(*problem.window)
    if not outputs_for(problem.window):
        sides = ", ".join(map(str, SIDES))
        return (
            f"the filter is {taps}; tiles are for sides of {sides}, "
            "one of which may be 1, and not for 7x7"
        )
    for name, value in ("dilation", canonical(problem.dilations)), ("groups", problem.groups):
        if value != 1:
            return f"{name}={value} is not 1"
    stride = canonical(problem.strides)
    if stride not in STRIDES:
        return f"stride={stride} is not one of {', '.join(map(str, STRIDES))}"
    if not outputs_of(problem):
        return f"a {taps} filter with stride={stride} has no tiles; a 3x3 filter has"
    return None


@dataclass(frozen=True)
class WinogradTiles:
    """Transforms of a convolution's tiles: V = B' d B, U = G w G', C = A' M A."""

    problem: Conv2d
    transforms: WinogradTransforms
    name: ClassVar[str] = "winograd"
    tiles_pixels: ClassVar[bool] = True

    @property
    def tile(self) -> tuple[int, int]:
        """Return the pixels of a tile of the result, down and across."""
        return self.transforms.output

    @property
    def outputs(self) -> int:
        """Return the pixels of a tile along an axis with several taps."""
        return max(self.transforms.output)

    @property
    def roundings(self) -> int:
        """Return the most roundings of a value in all transforms."""
        return self.transforms.roundings

    def magnitudes(self) -> "WinogradTiles":
        """Return the tiles with the magnitudes of all coefficients."""
        return replace(self, transforms=self.transforms.magnitudes())

    def stored(self, role: str) -> Operand:
        """Return the image by (n, y, x, ci), the filter by (kh, kw, ci, co)."""
        p = self.problem
        image = {"n": p.n, "y": p.h, "x": p.w, "ci": p.ci}
        sizes = image if role == "A" else {"kh": p.kh, "kw": p.kw, "ci": p.ci, "co": p.co}
        order = [*sizes]
        if p.has_channels_first:
            order = ["n", "ci", "y", "x"] if role == "A" else ["co", "ci", "kh", "kw"]
        axes = tuple(Axis(sizes[dim], (Term(dim),)) for dim in order)
        return Operand(role, role, axes, role == "B" and p.has_constant_weights)

    def stage(self, role: str, arrays: "Mapping[str, Array]", at: "Mapping[str, Array]") -> "Array":
        """Return transformed images, [point, t, ci], or filters, [point, ci, co]."""
        from tilewise.kernels.transforms import winograd_filters, winograd_images

        if role == "B":
            return winograd_filters(self.problem, self.transforms, arrays["B"], at["co"])
        return winograd_images(self.problem, self.transforms, arrays["A"], at[TILES])

    def combine(
        self, products: "Array", at: "Mapping[str, Array]"
    ) -> "Iterator[tuple[tuple[Array, ...], Array, Array]]":
        """Yield the pixels of the tiles that exist, and their sums."""
        from tilewise.kernels.transforms import winograd_results

        return winograd_results(self.problem, self.transforms, products, at[TILES], at["co"])
