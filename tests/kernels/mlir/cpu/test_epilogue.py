"""Bias and relu in the IR: nothing passes over the whole of C once it has been computed."""

import pytest
from iree.compiler import ir

from tests.kernels.mlir.build import IMAGE, PACKED, PIXELS, schedule
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_script
from tilewise.kernels.mlir.lowering.structure import walk
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.problem import parse_problem

REGISTER = "register rows=4 cols=16 outer=cols"
MATMUL = "matmul:m=64,n=96,k=48,dtype=f32,bias,epilogue=relu"
CONV = "conv2d:n=2,h=11,w=14,ci=8,co=32,kh=3,kw=3,dtype=f32,bias,epilogue=relu"
IN_REGISTERS = [
    (MATMUL, (REGISTER,)),
    (MATMUL, ("tile dim=n size=32", "pack operand=B", "tile dim=m size=8", REGISTER)),
    ("matmul:m=64,n=96,k=48,dtype=i32,init=accumulate,bias", ("pack operand=B", REGISTER)),
    ("matmul:m=64,n=96,k=48,dtype=f32,epilogue=relu", ("register rows=8 cols=48 outer=rows",)),
    (CONV, IMAGE),
    (CONV.replace("relu", "relu6"), IMAGE),
    (CONV.replace("kh=3", "kh=3,stride=2").replace("w=14", "w=17"), (REGISTER,)),
    (CONV.replace("ci=8,co=32", "ci=16,co=64,groups=2"), ("tile dim=g size=1", *IMAGE)),
    (
        "conv2d:n=2,h=6,w=18,ci=4,co=32,kh=3,kw=3,layout=nchw_fchw,dtype=f32,bias",
        tuple(step for step in PIXELS if "stream" not in step),
    ),
]


def operations(text: str, steps: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Name, loops around it, and elements of what it writes, of all that could pass over C."""
    problem = parse_problem(text)
    script = with_payload(problem, emit_script(problem, schedule(*steps)))
    with ir.Context() as context, ir.Location.unknown():
        module = apply_script(script, Diagnostics(context))
        return [
            (str(op.name), depth, elements(op.operands[-1].type))
            for op, depth in walk(module.operation)
            if op.name.startswith("linalg.") and len(op.operands) and op.name != "linalg.yield"
        ] + [
            (str(op.name), depth, elements(op.operands[0].type))
            for op, depth in walk(module.operation)
            if op.name in ("arith.maximumf", "arith.maxsi", "arith.minimumf", "vector.fma")
        ]


def elements(kind: object) -> int:
    if not isinstance(kind, ir.ShapedType | ir.VectorType | ir.MemRefType):
        return 1
    shaped = ir.ShapedType(kind)
    size = 1
    for dim in range(shaped.rank):
        size *= shaped.get_dim_size(dim)
    return size


@pytest.mark.parametrize(("text", "steps"), IN_REGISTERS)
def test_an_epilogue_of_whole_sums_is_applied_in_registers(
    text: str, steps: tuple[str, ...]
) -> None:
    found = operations(text, steps)
    passes = [name for name, _, _ in found if name.startswith("linalg.")]
    gathers = 1 if "nchw" in text else 0
    assert len(passes) == gathers, passes
    if "relu" in text:
        maxima = [size for name, _, size in found if name.startswith("arith.max")]
        assert maxima and min(maxima) >= 16, "relu is applied to vectors"
    if "relu6" in text:
        minima = [size for name, _, size in found if name.startswith("arith.min")]
        assert minima and min(minima) >= 16, "the ceiling is applied to vectors"


def test_where_the_reduction_is_cut_it_meets_its_block_in_cache() -> None:
    found = operations(MATMUL, PACKED)
    passes = [(name, depth, size) for name, depth, size in found if name.startswith("linalg.")]
    assert [name for name, _, _ in passes] == ["linalg.fill", "linalg.generic"]
    assert all(depth == 1 and size == 64 * 32 for _, depth, size in passes)


def test_where_rows_are_left_over_it_meets_its_block_in_cache() -> None:
    steps = ("tile dim=n size=32", "register rows=4 cols=16 outer=rows")
    found = operations(MATMUL.replace("m=64", "m=66"), steps)
    passes = [(depth, size) for name, depth, size in found if name == "linalg.generic"]
    assert passes == [(1, 66 * 32)]
