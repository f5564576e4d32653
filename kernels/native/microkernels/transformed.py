"""The micro-kernel of a schedule of transformed operands, and the transforms around it.

The products of one point are a small matrix product of packed factors, which the outer-product
micro-kernel computes without knowing what it is for: it writes sums of products to scratch, and
bias and relu are the transform's of the result.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from tilewise.kernels.arithmetic import Arithmetic
from tilewise.kernels.errors import LoweringError
from tilewise.kernels.instructions import Form
from tilewise.kernels.native.microkernels.abi import (
    ADD_BIAS,
    PAST_CACHES,
    RELU,
    ceiling_of,
    epilogue_flags,
)
from tilewise.kernels.native.microkernels.outer_product import (
    OuterProduct,
)
from tilewise.kernels.native.microkernels.outer_product_spec import (
    OuterProductSpec,
    outer_product_spec,
)
from tilewise.kernels.native.microkernels.specs import Piece
from tilewise.kernels.native.microkernels.use import ANYHOW, Use
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


def method_of(nest: Nest) -> Method:
    """Return what the transforms of a nest compute."""
    if isinstance(nest.algorithm, StrassenBlocks):
        return StrassenMethod(nest.algorithm.levels, nest.algorithm.algorithm)
    assert isinstance(nest.algorithm, WinogradTiles)
    tiles, problem = nest.algorithm, nest.algorithm.problem
    return WinogradMethod(tiles.outputs, problem.window, problem.stride)


@dataclass(frozen=True)
class TransformedProduct:
    """The products of the points, and the transforms.

    Attributes:
        spec: of the micro-kernel.
        transforms: of the transforms.
        turns: whether panels of B are transposed first.
        writes_past_caches: whether the result goes past the caches where it lies aligned.
    """

    spec: OuterProductSpec
    transforms: TransformSpec
    turns: bool
    writes_past_caches: bool = False

    form: ClassVar[Form] = Form.OUTER_PRODUCT

    @classmethod
    def serves(cls, nest: Nest) -> bool:
        """Return whether there are fewer products than by the direct method."""
        return nest.algorithm is not None

    @classmethod
    def of(cls, nest: Nest, target: Target, strides: Strides, how: Arithmetic) -> Self:
        """Return the one that a nest asks for; LoweringError for what the target has not."""
        spec, problem = outer_product_spec(nest, target, strides, how), nest.problem
        flags = epilogue_flags(nest.store)
        transforms = TransformSpec(
            element=problem.element.name,
            lanes=spec.lanes,
            fma=target.has_fma,
            method=method_of(nest),
            planes=problem.has_channels_first,
            depth=nest.extent(nest.k) % spec.lanes > 0,
            cols=nest.extent(nest.col) % spec.lanes > 0,
            adds=nest.store.adds_to_c,
            bias=bool(flags & ADD_BIAS),
            relu=bool(flags & RELU),
            ceiling=ceiling_of(flags),
        )
        alone = replace(_nearer(nest, target, spec), taps=False, bias_rows=False, epilogue=0)
        past_caches = nest.store.is_nontemporal
        if past_caches and transforms.cols:
            raise LoweringError(
                f"step nontemporal: vectors of {spec.lanes} do not divide the rows of C of "
                f"{problem}; drop the step"
            )
        return cls(alone, transforms, strides.b.is_transposed, past_caches)

    def pieces(self, use: Use = ANYHOW) -> dict[str, Piece]:
        """Its functions as they are used; where no tile is cut, `edge` takes all."""
        product = OuterProduct(self.spec, packs_transposed=self.turns, patch_stride=0)
        of_kernel = product.pieces(use)
        # Less what the code of each does not depend on, so that more schedules share it.
        image = replace(
            self.transforms, cols=False, adds=False, bias=False, relu=False, ceiling=None
        )
        result = replace(self.transforms, depth=False)
        weights = replace(image, depth=False, planes=False)
        past_caches = {}
        if self.writes_past_caches:
            past_caches[PAST_CACHES] = _of_result(replace(result, past_caches=True))
        return {
            "full": of_kernel["full"],
            "edge": of_kernel["edge"],
            "pack_b_panel": of_kernel["pack_b_panel"],
            "transform_image": Piece("left factors", (image,), emit_transform_image, True),
            "transform_result": _of_result(result),
            "transform_filter": Piece("right factors", (weights,), emit_transform_filter, True),
            **past_caches,
        }


def _of_result(spec: TransformSpec) -> Piece:
    return Piece("sums of products", (spec,), emit_transform_result, True)


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
