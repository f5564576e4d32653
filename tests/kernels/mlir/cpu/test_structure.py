"""The transformed IR has the loops of the nest, and packs where its stages are."""

from math import prod

import pytest

from tests.kernels.mlir.build import IMAGE, IN_PLACE, PACKED, schedule
from tests.kernels.mlir.nests import Transformed, read, stages, trips_around
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.proof.prove import transform
from tilewise.kernels.nest import Compute, Nest, shape_of
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule, loop_nest

SQUARE = "matmul:m=64,n=96,k=48,dtype=f32"
CONV = "conv2d:n=2,h=11,w=14,ci=8,co=32,kh=3,kw=3,dtype=f32"
CASES = [
    (SQUARE, schedule(*PACKED)),
    (SQUARE, schedule(*IN_PLACE)),
    (SQUARE, schedule("tile dim=m size=32", "tile dim=n size=48", *IN_PLACE)),
    (SQUARE, schedule("stream dim=k depth=24", "pack operand=A", *IN_PLACE)),
    (SQUARE, schedule("tile dim=m size=16", "stream dim=k depth=24", "pack operand=B", *IN_PLACE)),
    ("matmul:m=64,n=96,k=48,dtype=i32", schedule(*PACKED)),
    ("matmul:batch=3,m=16,n=32,k=32,dtype=f32", schedule("tile dim=batch size=1", *PACKED)),
    (CONV, schedule(*IMAGE)),
    (
        CONV,
        schedule("stream dim=ci depth=4", "pack operand=B", "register rows=4 cols=16 outer=rows"),
    ),
]


def transformed(problem: Problem, steps: Schedule) -> tuple[Nest, Transformed]:
    return loop_nest(problem, steps), read(transform(problem, emit_script(problem, steps)))


@pytest.mark.parametrize(("text", "steps"), CASES)
def test_loops_around_the_micro_kernel_are_the_nests(text: str, steps: Schedule) -> None:
    problem = parse_problem(text)
    nest, found = transformed(problem, steps)
    taps = [t for t in (getattr(problem, "kh", 1), getattr(problem, "kw", 1)) if t > 1]
    inside = [*taps, nest.depth // nest.compute.unroll]
    (tile,) = (here for here in nest.visit() if isinstance(here.node, Compute))
    assert len(found.kernels) == 1
    assert found.kernels[0].trips == trips_around(nest, tile) + inside


@pytest.mark.parametrize(("text", "steps"), CASES)
def test_packs_happen_where_the_nest_says(text: str, steps: Schedule) -> None:
    nest, found = transformed(parse_problem(text), steps)
    kernel = found.kernels[0]
    assert len(found.fills) == len(stages(nest))
    for stage in stages(nest):
        size = prod(shape_of(nest, stage))
        place = next(at for shape, at in found.fills.items() if prod(shape) == size)
        outside = trips_around(nest, stage)
        assert place.loops[: len(outside)] == kernel.loops[: len(outside)]
        assert place.trips[: len(outside)] == outside
        assert place.loops[len(outside)] not in kernel.loops


def test_packed_shapes_are_the_nests() -> None:
    problem = parse_problem(SQUARE)
    nest, found = transformed(problem, schedule(*PACKED))
    panels, rows = (shape_of(nest, stage) for stage in stages(nest))
    assert set(found.fills) == {(panels[0], panels[2], panels[3]), rows}


def test_remainders_add_blocks_but_no_trips() -> None:
    problem = parse_problem("matmul:m=70,n=101,k=50,dtype=f32")
    nest, found = transformed(problem, schedule(*PACKED))
    calls = sum(prod(place.trips[:-1]) for place in found.kernels)
    (tile,) = (here for here in nest.visit() if isinstance(here.node, Compute))
    visits = prod(trips_around(nest, tile))
    # whole blocks and short ones are separate nests, and their visits add up to the nest's
    assert len(found.kernels) > 1
    assert calls <= visits


def test_operands_read_in_place_are_not_copied() -> None:
    _, found = transformed(parse_problem("matmul:m=13,n=37,k=11,dtype=f64"), schedule(*IN_PLACE))
    assert found.fills == {}
