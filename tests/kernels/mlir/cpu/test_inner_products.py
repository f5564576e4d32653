"""Scripts of a split reduction: sums stay in vectors, and become one sum once."""

from collections import Counter

import pytest
from iree.compiler import ir

from tests.kernels.mlir.build import schedule
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_script
from tilewise.kernels.mlir.lowering.structure import walk
from tilewise.kernels.mlir.payload.function import payload
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.problem import parse_problem

COLUMN = ("register rows=4 cols=1 outer=cols", "split dim=k lanes=32", "unroll factor=2")
TILE = ("register rows=2 cols=3 outer=cols", "split dim=k lanes=16")
CASES = [
    ("matmul:m=16,n=1,k=256,dtype=f32", COLUMN, 4, 2),
    ("matmul:m=16,n=1,k=267,dtype=f32,bias,epilogue=relu", COLUMN, 4, 2),
    ("matmul:m=16,n=6,k=160,dtype=f32,transpose_b", TILE, 6, 3),
    ("matmul:m=16,n=6,k=160,dtype=i32,transpose_b,init=accumulate", TILE, 6, 3),
    # 8 vectors for each of three rows: registers hold those of one
    (
        "matmul:m=6,n=2,k=512,dtype=f32,transpose_b",
        ("register rows=3 cols=2 outer=rows", "split dim=k lanes=128"),
        2,
        3,
    ),
]
STORES = ("vector.store", "vector.transfer_write", "memref.store", "memref.copy")
ADDS = ("vector.reduction", "vector.multi_reduction")


@pytest.mark.parametrize(("text", "steps", "elements", "depth"), CASES)
def test_sums_stay_in_registers_until_they_are_added_up(
    text: str, steps: tuple[str, ...], elements: int, depth: int
) -> None:
    """`depth` loops lie around the products, the innermost over the reduction."""
    problem = parse_problem(text)
    with ir.Context() as context, ir.Location.unknown():
        script = with_payload(problem, emit_script(problem, schedule(*steps)))
        module = apply_script(script, Diagnostics(context))
        found = Counter((str(op.name), at) for op, at in walk(module.operation))
        carried = [
            [str(value.type) for value in op.results]
            for op, at in walk(module.operation)
            if op.name == "scf.for" and at == depth - 1
        ]
    assert max(at for (name, at) in found if name.startswith("arith.mul")) == depth
    assert not any(found[name, depth] for name in STORES)
    assert sum(found[name, at] for name, at in found if name in ADDS) == elements
    assert found["vector.reduction", depth - 1] == elements
    assert len(carried) == 1 and carried[0]
    assert all(kind.startswith("vector<") for kind in carried[0])


def test_a_single_column_is_seen_as_it_lies() -> None:
    one = payload(parse_problem("matmul:m=16,n=1,k=8,dtype=f32"))
    assert "affine_map<(m, n, k) -> (n, k)>" in one
    assert "tensor<8xf32> into tensor<1x8xf32>" in one
    assert "indexing_maps" not in payload(parse_problem("matmul:m=16,n=2,k=8,dtype=f32"))
