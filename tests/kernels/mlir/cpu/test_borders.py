"""Cutting one dim of a result for blocks of one size, where some reach beside the image."""

from hypothesis import given
from hypothesis import strategies as st

from tilewise.kernels.mlir.cpu.borders import ImageAxis, OutputPart, parts

INSIDE_BUT_ENDS = ImageAxis(extent=56, stride=1, reach=2, pad=1)


def test_tiles_beside_the_image_are_apart_and_those_inside_together() -> None:
    found = parts(56, 8, 1, 0, INSIDE_BUT_ENDS)
    assert found == [OutputPart(8, 0), OutputPart(40), OutputPart(8, 48)]


def test_without_padding_whole_blocks_then_vectors_then_the_rest() -> None:
    assert parts(54, 32, 16, None, None) == [OutputPart(32), OutputPart(16), OutputPart(6)]
    assert parts(54, 16, 16, None, None) == [OutputPart(48), OutputPart(6)]


def test_a_block_that_is_cut_again_keeps_its_place() -> None:
    first, middle, last = parts(56, 8, 1, 0, INSIDE_BUT_ENDS)
    assert parts(first.extent, 2, 1, first.start, INSIDE_BUT_ENDS) == [
        OutputPart(2, 0),
        OutputPart(6),
    ]
    assert parts(last.extent, 2, 1, last.start, INSIDE_BUT_ENDS) == [
        OutputPart(6),
        OutputPart(2, 54),
    ]
    assert parts(middle.extent, 2, 1, middle.start, INSIDE_BUT_ENDS) == [OutputPart(40)]


axes = st.builds(
    ImageAxis, st.integers(1, 40), st.integers(1, 3), st.integers(0, 6), st.integers(0, 4)
)


@given(axes, st.integers(1, 12), st.integers(1, 4))
def test_parts_cover_every_output_once_and_know_what_reaches_out(
    axis: ImageAxis, size: int, lanes: int
) -> None:
    extent = max(0, (axis.extent + 2 * axis.pad - axis.reach - 1) // axis.stride + 1)
    at = 0
    for part in parts(extent, size, lanes, 0, axis):
        alone = [axis.is_inside(output, output) for output in range(at, at + part.extent)]
        assert part.start == (None if all(alone) else at)
        assert part.extent <= size or part.start is None
        at += part.extent
    assert at == extent
