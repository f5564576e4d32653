"""Native kernels of nchw images: patches, their padding, and edges."""

from itertools import product

import numpy as np
import pytest

from tests.cases import some
from tests.kernels.native_case import TARGETS, check
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands, to_bf16
from tilewise.kernels.problem import DTYPES, parse_problem
from tilewise.kernels.schedule import Pack, Register, Schedule, Stream, Tile, Unroll
from tilewise.kernels.target import Target

NCHW = "conv2d:n=2,h=9,w=11,ci=6,co=20,kh=3,kw=2,pad=1,groups=2,layout=nchw_fchw"


@pytest.mark.parametrize(
    ("target", "dtype", "stride"), some(product(TARGETS, sorted(DTYPES), [1, 2, 3]), of=11)
)
def test_nchw_chunks_that_split_a_channels_taps(dtype: str, stride: int, target: Target) -> None:
    problem = parse_problem(f"{NCHW},stride={stride},dtype={dtype},bias,epilogue=relu")
    lanes = target.lanes(dtype)
    steps = (
        Tile("g", 1),
        Stream("k", 8),  # of 18, 6 taps to a channel
        Pack("A"),  # which no image moves
        Tile("n", 1),
        Tile("p", 4 * lanes),
        Pack("B"),
        Register(3, 2 * lanes),
        Unroll(2),
    )
    check(problem, Schedule(steps), target, 12)


def test_nchw_bias_of_an_edge_tile_is_read_by_row(host: Target) -> None:
    problem = parse_problem(
        "conv2d:n=1,h=3,w=3,ci=4,co=7,kh=1,kw=1,layout=nchw_fchw,dtype=f32,bias"
    )
    check(problem, Schedule((Register(5, 16),)), host, 4)  # rows 5 to 9, of which 7 exist
    operands = make_operands(problem, 0)
    operands["A"][...] = 0
    lower(problem, Schedule((Register(5, 16),)), host).run(operands)
    assert (operands["C"] == operands["bias"][:, None, None]).all()


@pytest.mark.parametrize(
    ("value", "stride", "dtype"),
    some(product([np.nan, np.inf], [1, 2, 3], ["f32", "bf16", "f16"]), of=5),
)
def test_nchw_padding_and_lanes_without_a_pixel_are_zero(
    value: float, stride: int, dtype: str, host: Target
) -> None:
    """The image next to the padding holds `value`; pixels that do not read it stay finite."""
    problem = parse_problem(
        f"conv2d:n=1,h=7,w=9,ci=3,co=5,kh=3,kw=3,pad=2,stride={stride},layout=nchw_fchw,"
        f"dtype={dtype}"
    )
    operands = make_operands(problem, 0)
    bad = np.array([value], np.float32)
    operands["A"][:, :, :, [0, -1]] = to_bf16(bad)[0] if dtype == "bf16" else bad[0]
    reads = np.zeros((7 + 4, 9 + 4), bool)
    reads[2:-2, [2, -3]] = True
    windows = np.lib.stride_tricks.sliding_window_view(reads, (3, 3))[::stride, ::stride]
    lanes = host.lanes(dtype)
    for scratch in (0x00, 0xFF):  # what a panel holds before it is packed; 0xFF is a NaN
        executable = lower(problem, Schedule((Pack("B"), Pack("A"), Register(4, lanes))), host)
        held = {
            name: np.full(size + 64, scratch, np.uint8)
            for name, size in executable.scratch_bytes.items()
        }
        executable.bind(operands, held)()
        assert (np.isfinite(operands["C"]) == ~windows.any((2, 3))).all()
