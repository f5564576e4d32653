import pytest

from tilewise.kernels.nest import Nest, Stage, count, printed, shape_of
from tilewise.kernels.problem import Conv2d, parse_problem
from tilewise.kernels.schedule import (
    Pack,
    Register,
    Schedule,
    Split,
    Stream,
    Tile,
    Unroll,
    loop_nest,
)

GOTO = Schedule(
    (
        Tile("n", 480),
        Stream("k", 501),
        Pack("B"),
        Tile("m", 96),
        Pack("A"),
        Register(8, 48),
        Unroll(4),
    )
)
ODD = parse_problem("matmul:m=1000,n=999,k=1001,dtype=f32")


def stages(nest: Nest) -> list[tuple[str, tuple[int, ...]]]:
    """The operands that are staged, with the shapes of their largest blocks."""
    visited = [here for here in nest.visit() if isinstance(here.node, Stage)]
    return [(here.node.operand, shape_of(nest, here)) for here in visited]


def test_printed_nest() -> None:
    assert "\n".join(printed(loop_nest(ODD, GOTO))) == (
        "for n step 480:  # tile, 3 trips\n"
        "  for k step 501:  # k-block, 2 trips\n"
        "    pack B to panels 10x1x501x48\n"
        "    for m step 96:  # tile, 11 trips\n"
        "      pack A to rows 96x501\n"
        "      for n step 48:  # micro, 10 trips\n"
        "        for m step 8:  # micro, 12 trips\n"
        "          C += A * B  # 8x48 over 501, unrolled 4\n"
        "          store C"
    )


def test_counts_with_remainders_everywhere() -> None:
    counts = count(loop_nest(ODD, GOTO))
    panels, tiles = 21, 125  # of 48 columns and 8 rows; 960 and 992 are whole
    assert counts.micro_kernels == panels * tiles * 2
    assert counts.packs == {"B": 3 * 2, "A": 3 * 2 * 11}
    assert counts.packed_bytes == {"B": 21 * 48 * 1001 * 4, "A": 3 * 1000 * 1001 * 4}


def blocks(extent: int, *sizes: int) -> list[range]:
    """A dim cut into blocks of a size, those into blocks of the next, and so on."""
    found = [range(extent)]
    for size in sizes:
        found = [one[at : at + size] for one in found for at in range(0, len(one), size)]
    return found


def lines_under(outputs: range, taps: int, problem: Conv2d) -> int:
    """Lines of the image from the first to the last that some tap of some output reads."""
    read = {o * problem.stride + t * problem.dilation for o in outputs for t in range(taps)}
    return max(read) - min(read) + 1


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("taps", [1, 2, 4])
def test_what_packs_of_an_image_write_is_what_their_outputs_read(
    stride: int, dilation: int, taps: int
) -> None:
    text = f"n=3,h=40,w=50,ci=6,co=32,kh={taps},kw=3,stride={stride},dilation={dilation},pad=2"
    problem = parse_problem(f"conv2d:{text},dtype=f32")
    steps = (Stream("ci", 4), Tile("n", 1), Tile("oh", 9), Tile("oh", 4), Tile("ow", 10), Pack("A"))
    nest = loop_nest(problem, Schedule((*steps, Register(5, 16))))
    down = [lines_under(block, taps, problem) for block in blocks(problem.oh, 9, 4)]
    across = [lines_under(block, 3, problem) for block in blocks(problem.ow, 10)]
    assert stages(nest) == [("A", (max(down), max(across), 4))]
    counts = count(nest)
    assert counts.packed_bytes == {"A": 3 * sum(down) * sum(across) * problem.ci * 4}
    assert counts.packs == {"A": 2 * 3 * len(down) * len(across)}


def test_a_split_reduction_packs_columns_and_counts_alike() -> None:
    problem = parse_problem("matmul:m=10,n=3,k=100,dtype=f32")
    steps = (Stream("k", 50), Pack("B"), Register(4, 2))
    nest = loop_nest(problem, Schedule((*steps, Split("k", 32), Unroll(2))))
    assert stages(nest) == [("B", (2, 1, 2, 50))]
    assert "  C += A * B  # 4x2 over 50 in 32 partial sums, unrolled 2" in "\n".join(printed(nest))
    assert count(nest) == count(loop_nest(problem, Schedule(steps)))
