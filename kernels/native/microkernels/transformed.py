"""The micro-kernel of a schedule of transformed operands, and the transforms around it.

The products of one point are a small matrix product of packed factors, which the outer-product
micro-kernel computes without knowing what it is for: it writes sums of products to scratch, and
bias and relu are part of the transform of the result.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.microkernels.abi import (
    ADD_BIAS,
    PAST_CACHES,
    RELU,
    ceiling_of,
    epilogue_flags,
)
from tilewise.kernels.native.microkernels.building_blocks import check_nontemporal
from tilewise.kernels.native.microkernels.microkernel import ANY_USE, Piece, Use
from tilewise.kernels.native.microkernels.outer_product import OuterProduct, outer_product_spec
from tilewise.kernels.native.microkernels.outer_product_code import OuterProductSpec
from tilewise.kernels.native.packing.tile_maps import Method, StrassenMethod, WinogradMethod
from tilewise.kernels.native.packing.transforms import (
    TransformSpec,
    emit_transform_filter,
    emit_transform_image,
    emit_transform_result,
)
from tilewise.kernels.native.strides import Strides
from tilewise.kernels.nest import Nest
from tilewise.kernels.steps.strassen import StrassenBlocks
from tilewise.kernels.steps.winograd import WinogradTiles
from tilewise.kernels.target.model import Target


@dataclass(frozen=True)
class TransformedProduct:
    """The products of the points, and the transforms.

    Attributes:
        product: the micro-kernel, and the pack of the filter.
        transforms: of the transforms.
        writes_past_caches: whether the result is stored past the caches where it is aligned.
    """

    product: OuterProduct
    transforms: TransformSpec
    writes_past_caches: bool

    form: ClassVar[Form] = Form.OUTER_PRODUCT

    @property
    def spec(self) -> OuterProductSpec:
        """What the code of the micro-kernel depends on."""
        return self.product.spec

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether there are fewer products than by the direct method."""
        return nest.algorithm is not None

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one for a nest; LoweringError where it needs what the target lacks."""
        spec, problem = outer_product_spec(nest, target, strides, how), nest.problem
        flags = epilogue_flags(nest.store)
        transforms = TransformSpec(
            element=problem.element.name,
            lanes=spec.lanes,
            fma=target.has_fma,
            method=_method_of(nest),
            planes=problem.has_channels_first,
            depth=nest.extent(nest.k) % spec.lanes > 0,
            cols=nest.extent(nest.col) % spec.lanes > 0,
            adds=nest.store.adds_to_c,
            bias=bool(flags & ADD_BIAS),
            relu=bool(flags & RELU),
            ceiling=ceiling_of(flags),
        )
        check_nontemporal(nest, spec.lanes, is_whole=not transforms.cols)
        alone = replace(_nearer(nest, target, spec), taps=0, bias_rows=False, epilogue=0)
        product = OuterProduct(alone, strides.b.is_transposed, patch_stride=0)
        return cls(product, transforms, nest.store.is_nontemporal)

    def pieces(self, use: Use = ANY_USE) -> dict[str, Piece]:
        """Return its functions as they are used; where no tile is cut, `edge` takes all."""
        of_product = self.product.pieces(use)
        # Without what the code of each does not depend on, so that more schedules share it.
        image = replace(
            self.transforms, cols=False, adds=False, bias=False, relu=False, ceiling=None
        )
        weights = replace(image, depth=False, planes=False)
        result = replace(self.transforms, depth=False)
        made = {
            **{name: of_product[name] for name in ("full", "edge", "pack_b_panel")},
            "transform_image": Piece("left factors", (image,), emit_transform_image, True),
            "transform_result": Piece("sums of products", (result,), emit_transform_result, True),
            "transform_filter": Piece("right factors", (weights,), emit_transform_filter, True),
        }
        if self.writes_past_caches:
            past_caches = (replace(result, past_caches=True),)
            made[PAST_CACHES] = replace(made["transform_result"], given=past_caches)
        return made


def _method_of(nest: Nest) -> Method:
    """What the transforms of a nest compute."""
    if isinstance(nest.algorithm, StrassenBlocks):
        return StrassenMethod(nest.algorithm.levels, nest.algorithm.matrices)
    assert isinstance(nest.algorithm, WinogradTiles)
    tiles, problem = nest.algorithm, nest.algorithm.problem
    return WinogradMethod(tiles.outputs, (problem.kh, problem.kw), problem.strides[0])


def _nearer(nest: Nest, target: Target, spec: OuterProductSpec) -> OuterProductSpec:
    """Fetch panels to the first cache where one tile reads each, and the last cache is far away.

    A register tile then has all tiles of a thread's block. Each thread packs or reads all panels,
    and has a part of the tiles.
    """
    far, fetch = target.core.far_l3, spec.fetch
    tiles = min(nest.enclosing(nest.row), nest.part(nest.row))
    if fetch is None or far is None or tiles > nest.tile.rows:
        return spec
    offset = far.near_bytes - fetch.distance
    return replace(
        spec, fetch=replace(fetch, distance=far.near_bytes, level=1), fetch_offset=offset
    )
