"""Nests as convolutions, without MLIR."""

from dataclasses import replace

import pytest

from tilewise.kernels.mlir.frontend.nest import (
    ContractionNest,
    NestOperand,
    NestRefusedError,
    convolution_layout,
)

# Dims: n, oh, ow, f, kh, kw, c.
EXTENTS = (2, 4, 5, 6, 3, 2, 7)


def plain(stride: tuple[int, int] = (1, 1), dilation: tuple[int, int] = (1, 1)) -> ContractionNest:
    """nhwc by hwcf, with steps along h and w."""
    rows = (stride[0] * 3 + dilation[0] * 2 + 1, stride[1] * 4 + dilation[1] + 1)
    image = NestOperand(
        (((0, 1),), ((1, stride[0]), (4, dilation[0])), ((2, stride[1]), (5, dilation[1])),
         ((6, 1),)),
        (2, *rows, 7),
    )  # fmt: skip
    filters = NestOperand((((4, 1),), ((5, 1),), ((6, 1),), ((3, 1),)), (3, 2, 7, 6))
    result = NestOperand((((0, 1),), ((1, 1),), ((2, 1),), ((3, 1),)), (2, 4, 5, 6))
    return ContractionNest(EXTENTS, image, filters, result)


def test_a_convolution_stays_where_it_is() -> None:
    found = convolution_layout(plain((2, 2), (3, 3)))
    assert found.sizes == {
        "n": 2, "h": 13, "w": 12, "ci": 7, "co": 6, "kh": 3, "kw": 2, "stride": 2, "dilation": 3,
        "groups": 1, "layout": "nhwc_hwcf",
    }  # fmt: skip
    assert found.moved == 0 and found.spatial == (1, 2) and found.columns == {3}


def test_the_layout_is_the_one_that_moves_least() -> None:
    nest = plain()
    first = replace(
        nest,
        a=nest.a.transposed((0, 3, 1, 2)),
        b=nest.b.transposed((3, 2, 0, 1)),
        c=nest.c.transposed((0, 3, 1, 2)),
    )
    found = convolution_layout(first)
    assert (found.sizes["layout"], found.moved) == ("nchw_fchw", 0)
    turned = replace(nest, b=nest.b.transposed((3, 0, 1, 2)))
    assert convolution_layout(turned).moved == 3 * 2 * 7 * 6 + 1
    assert convolution_layout(turned, (1, 0, 1)).moved == 1


@pytest.mark.parametrize(
    ("strides", "dilations", "found"),
    [((1, 2), (1, 1), ("1x2", 1)), ((1, 1), (2, 1), (1, "2x1")), ((2, 2), (2, 2), (2, 2))],
)
def test_windows_may_differ_by_side(
    strides: tuple[int, int], dilations: tuple[int, int], found: tuple[object, object]
) -> None:
    sizes = dict(convolution_layout(plain(strides, dilations)).sizes)
    assert (sizes["stride"], sizes["dilation"]) == found


def test_the_image_may_be_the_second_input() -> None:
    nest = plain()
    found = convolution_layout(ContractionNest(EXTENTS, nest.b, nest.a, nest.c))
    assert found.is_swapped and found.moved == 0


@pytest.mark.parametrize(
    ("nest", "reason"),
    [
        (replace(plain(), a=replace(plain().a, shape=(2, 9, 6, 7))), "leaves others out"),
        (replace(plain(), b=NestOperand((((5, 1),), ((6, 1),), ((3, 1),)), (2, 7, 6))),
         "without a filter"),
    ],
)  # fmt: skip
def test_what_is_none_is_refused(nest: ContractionNest, reason: str) -> None:
    with pytest.raises(NestRefusedError, match=reason):
        convolution_layout(nest)
