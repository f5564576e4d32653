"""What transforms compute: the maps of a tile, for each method that has fewer products."""

from dataclasses import dataclass
from typing import Protocol

from tilewise.kernels import strassen
from tilewise.kernels.native.packing.linear_maps import BothSides, FromProducts, TileMap, ToProducts
from tilewise.kernels.winograd import WinogradTransforms, winograd_transforms

Shape = tuple[int, int]


class Method(Protocol):
    """Transforms of tiles of the image, of the filter, and of products to tiles of the result."""

    @property
    def image(self) -> tuple[Shape, TileMap]:
        """Of a tile of so many values, down and across, to the left factors of the products."""

    @property
    def filter(self) -> tuple[Shape, TileMap]:
        """Of so many taps to the right factors."""

    @property
    def products(self) -> Shape:
        """In what rows and columns factors and products are numbered."""

    @property
    def result(self) -> tuple[Shape, TileMap]:
        """Of the products to a tile of so many values."""

    @property
    def cuts_columns(self) -> bool:
        """Whether the values of a line of the result are not of the same columns."""


@dataclass(frozen=True)
class WinogradMethod:
    """Winograd transforms of a convolution.

    Attributes:
        output: pixels of a tile of the result along the filter.
        taps: of the filter, down and across.
        stride: of the filter.
    """

    output: int
    taps: Shape
    stride: int

    @property
    def _transforms(self) -> WinogradTransforms:
        return winograd_transforms(self.output, self.taps, self.stride)

    @property
    def image(self) -> tuple[Shape, TileMap]:
        """Both sides of a tile of pixels."""
        found = self._transforms
        return found.input, BothSides(found.down.image, found.across.image)

    @property
    def filter(self) -> tuple[Shape, TileMap]:
        """Both sides of a filter."""
        found = self._transforms
        return self.taps, BothSides(found.down.filter, found.across.filter)

    @property
    def products(self) -> Shape:
        """As many as the tile has inputs."""
        return self._transforms.input

    @property
    def result(self) -> tuple[Shape, TileMap]:
        """Both sides of the products."""
        found = self._transforms
        return found.output, BothSides(found.down.result, found.across.result)

    @property
    def cuts_columns(self) -> bool:
        """Never: the values are pixels."""
        return False


@dataclass(frozen=True)
class StrassenMethod:
    """Strassen's products (`tilewise.kernels.strassen`).

    Attributes:
        levels: how often operands are cut in halves.
    """

    levels: int

    @property
    def _square(self) -> Shape:
        return 2**self.levels, 2**self.levels

    @property
    def image(self) -> tuple[Shape, TileMap]:
        """A group of rows, in parts of the reduction."""
        return self._square, ToProducts(strassen.IMAGE, self.levels)

    @property
    def filter(self) -> tuple[Shape, TileMap]:
        """Parts of the reduction, in parts of the columns."""
        return self._square, ToProducts(strassen.FILTER, self.levels)

    @property
    def products(self) -> Shape:
        """Those of the first level one below the other."""
        return strassen.PRODUCTS, strassen.PRODUCTS ** (self.levels - 1)

    @property
    def result(self) -> tuple[Shape, TileMap]:
        """A group of rows, in parts of the columns."""
        return self._square, FromProducts(strassen.RESULT, self.levels)

    @property
    def cuts_columns(self) -> bool:
        """The values of a line lie a part of the columns apart."""
        return True
