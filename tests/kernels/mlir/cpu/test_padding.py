"""Zero padding of an image in the IR: made block by block, where A is packed."""

from math import prod

import pytest
from iree.compiler import ir

from tests.kernels.mlir.build import schedule
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_script
from tilewise.kernels.mlir.lowering.structure import walk
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.problem import parse_problem

REGISTER = "register rows=4 cols=16 outer=cols"
CONV = "conv2d:n=1,h=12,w=12,ci=8,co=32,kh=3,kw=3,pad=1,dtype=f32"
WHOLE = 14 * 14 * 8


def buffers(text: str, steps: tuple[str, ...]) -> list[tuple[int, int]]:
    """Elements of every buffer that a script makes, and the loops around it."""
    problem = parse_problem(text)
    script = with_payload(problem, emit_script(problem, schedule(*steps)))
    with ir.Context() as context, ir.Location.unknown():
        module = apply_script(script, Diagnostics(context))
        return [
            (prod(ir.MemRefType(op.results[0].type).shape), depth)
            for op, depth in walk(module.operation)
            if op.name == "memref.alloc"
        ]


@pytest.mark.parametrize(
    ("outer", "block"),
    [
        (("tile dim=n size=1", "tile dim=oh size=4"), 6 * 14 * 8),
        (("stream dim=ci depth=4", "tile dim=n size=1", "tile dim=oh size=6"), 8 * 14 * 4),
        (("tile dim=co size=16", "tile dim=n size=1", "tile dim=oh size=4"), 6 * 14 * 8),
    ],
)
def test_a_block_of_the_padded_image_is_made_in_the_loop_that_uses_it(
    outer: tuple[str, ...], block: int
) -> None:
    found = buffers(CONV, (*outer, "pack operand=A", REGISTER))
    loops = len([step for step in outer if "dim=n" not in step])
    # one for blocks with an image in them, one for blocks that are nothing but padding
    assert found and {*found} == {(block, loops)}
    assert len(found) <= 2


def test_where_the_innermost_loop_does_not_move_the_image_it_is_padded_once() -> None:
    steps = ("tile dim=n size=1", "tile dim=oh size=4", "tile dim=co size=16", "pack operand=A")
    assert (WHOLE, 0) in buffers(CONV, (*steps, REGISTER))


@pytest.mark.parametrize("outer", [("tile dim=n size=1",), ("tile dim=co size=16",)])
def test_where_no_loop_moves_the_image_it_is_padded_once(outer: tuple[str, ...]) -> None:
    steps = (*outer, *(("tile dim=n size=1",) if "co" in outer[0] else ()), "pack operand=A")
    assert buffers(CONV, (*steps, REGISTER)) == [(WHOLE, 0)]


def test_blocks_of_two_lengths_copy_from_the_padded_image() -> None:
    steps = ("tile dim=n size=1", "tile dim=oh size=5", "pack operand=A", REGISTER)
    found = buffers(CONV, steps)
    assert (WHOLE, 0) in found and {size for size, _ in found} == {WHOLE, 7 * 14 * 8, 4 * 14 * 8}
