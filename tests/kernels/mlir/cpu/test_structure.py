"""What scripts make of a nest in the IR: what stays in registers, where buffers and copies are."""

import re
from collections import Counter
from math import prod

import pytest
from iree.compiler import ir

from tests.cases import some
from tests.kernels.mlir.build import IMAGE, PACKED, PIXELS, schedule
from tests.kernels.mlir.nests import applied, read, transformed
from tilewise.kernels.mlir.cpu import grouped_conv
from tilewise.kernels.mlir.cpu.script import notes
from tilewise.kernels.mlir.lowering.apply import StageError
from tilewise.kernels.mlir.lowering.structure import check_structure, walk
from tilewise.kernels.mlir.payload.function import payload
from tilewise.kernels.mlir.proof.prove import prove
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.operands import make_operands
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
    ("conv2d:n=2,h=6,w=18,ci=4,co=32,kh=3,kw=3,layout=nchw_fchw,dtype=f32,bias",
     tuple(step for step in PIXELS if "stream" not in step)),
]  # fmt: skip


def operations(text: str, steps: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Name, loops around it, and elements of what it writes, of all that could pass over C."""
    with transformed(text, schedule(*steps)) as module:
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
    return prod(shaped.get_dim_size(dim) for dim in range(shaped.rank))


@pytest.mark.parametrize(("text", "steps"), IN_REGISTERS)
def test_an_epilogue_of_whole_sums_is_applied_in_registers(text, steps) -> None:
    found = operations(text, steps)
    passes = [name for name, _, _ in found if name.startswith("linalg.")]
    gathers = 1 if "nchw" in text else 0
    assert len(passes) == gathers, passes
    for epilogue, name in (("relu", "arith.max"), ("relu6", "arith.min")):
        if epilogue in text:
            sizes = [size for one, _, size in found if one.startswith(name)]
            assert sizes and min(sizes) >= 16, "it is applied to vectors"


def test_where_the_reduction_or_rows_are_cut_it_meets_its_block_in_cache() -> None:
    passes = [one for one in operations(MATMUL, PACKED) if one[0].startswith("linalg.")]
    assert passes == [("linalg.fill", 1, 64 * 32), ("linalg.generic", 1, 64 * 32)]
    steps = ("tile dim=n size=32", "register rows=4 cols=16 outer=rows")
    found = operations(MATMUL.replace("m=64", "m=66"), steps)
    passes = [one for one in found if one[0] == "linalg.generic"]
    assert passes == [("linalg.generic", 1, 66 * 32)]


COLUMN = ("register rows=4 cols=1 outer=cols", "split dim=k lanes=32", "unroll factor=2")
TILE_OF_SUMS = ("register rows=2 cols=3 outer=cols", "split dim=k lanes=16")
SPLIT = [
    ("matmul:m=16,n=1,k=256,dtype=f32", COLUMN, 4, 2),
    ("matmul:m=16,n=1,k=267,dtype=f32,bias,epilogue=relu", COLUMN, 4, 2),
    ("matmul:m=16,n=6,k=160,dtype=f32,transpose_b", TILE_OF_SUMS, 6, 3),
    ("matmul:m=16,n=6,k=160,dtype=i32,transpose_b,init=accumulate", TILE_OF_SUMS, 6, 3),
    # 8 vectors for each of three rows: registers hold those of one
    ("matmul:m=6,n=2,k=512,dtype=f32,transpose_b",
     ("register rows=3 cols=2 outer=rows", "split dim=k lanes=128"), 2, 3),
]  # fmt: skip
STORES = ("vector.store", "vector.transfer_write", "memref.store", "memref.copy")
ADDS = ("vector.reduction", "vector.multi_reduction")


@pytest.mark.parametrize(("text", "steps", "sums", "depth"), SPLIT)
def test_sums_of_a_split_reduction_stay_in_registers_until_they_are_added_up(
    text: str, steps: tuple[str, ...], sums: int, depth: int
) -> None:
    """`depth` loops lie around the products, the innermost over the reduction."""
    with transformed(text, schedule(*steps)) as module:
        found = Counter((str(op.name), at) for op, at in walk(module.operation))
        carried = [
            [str(value.type) for value in op.results]
            for op, at in walk(module.operation)
            if op.name == "scf.for" and at == depth - 1
        ]
    assert max(at for (name, at) in found if name.startswith("arith.mul")) == depth
    assert not any(found[name, depth] for name in STORES)
    assert sum(found[name, at] for name, at in found if name in ADDS) == sums
    assert found["vector.reduction", depth - 1] == sums
    assert len(carried) == 1 and carried[0]
    assert all(kind.startswith("vector<") for kind in carried[0])


PADDED = "conv2d:n=1,h=12,w=12,ci=8,co=32,kh=3,kw=3,pad=1,dtype=f32"
WHOLE = 14 * 14 * 8
IMAGES, LINES, COLS = "tile dim=n size=1", "tile dim=oh size=4", "tile dim=co size=16"


def buffers(*steps: str) -> set[tuple[int, int]]:
    """Elements of each kind of buffer that a script of the padded image makes, and the loops
    around it.
    """
    with transformed(PADDED, schedule(*steps, "pack operand=A", REGISTER)) as module:
        return {
            (prod(ir.MemRefType(op.results[0].type).shape), depth)
            for op, depth in walk(module.operation)
            if op.name == "memref.alloc"
        }


@pytest.mark.parametrize(("outer", "block"), [
    ((IMAGES, LINES), 6 * 14 * 8),
    (("stream dim=ci depth=4", IMAGES, "tile dim=oh size=6"), 8 * 14 * 4),
    ((COLS, IMAGES, LINES), 6 * 14 * 8),
])  # fmt: skip
def test_a_block_of_the_padded_image_is_made_in_the_loop_that_uses_it(outer, block) -> None:
    loops = len([step for step in outer if "dim=n" not in step])
    assert buffers(*outer) == {(block, loops)}


def test_where_the_innermost_loop_does_not_move_the_image_it_is_padded_once() -> None:
    assert (WHOLE, 0) in buffers(IMAGES, LINES, COLS)
    assert buffers(IMAGES) == buffers(COLS, IMAGES) == {(WHOLE, 0)}
    found = buffers(IMAGES, "tile dim=oh size=5")  # blocks of two lengths copy from it
    assert (WHOLE, 0) in found and {size for size, _ in found} == {WHOLE, 7 * 14 * 8, 4 * 14 * 8}


DEPTHWISE = "conv2d:n=1,h=12,w=14,ci=16,co=16,kh=3,kw=3,pad=1,groups=16,dtype=f32"
JAMMED = ("register rows=2 cols=16 outer=cols", "jam dim=oh factor=2")
GROUPS = "conv2d:n=1,h=6,w=9,ci=24,co=24,kh=2,kw=3,groups=6,dtype=f32"
TILE = JAMMED[:1]


@pytest.mark.parametrize(("text", "steps", "trips", "tiles"), [
    # four corners; left and right in the loop over lines; the inside; above and below
    (DEPTHWISE, JAMMED, [[], [4], [4, 5], [5], [5]], 4 + 2 * 4 + 4 * 5 + 2 * 5),
    ("conv2d:n=1,h=6,w=8,ci=32,co=32,kh=2,kw=3,groups=8,dtype=f32", TILE, [[2, 5, 3]], 30),
])  # fmt: skip
def test_tiles_of_narrow_groups_are_those_of_the_native_kernel(text, steps, trips, tiles, host):
    assert sorted(place.trips for place in read(applied(text, schedule(*steps))).kernels) == trips
    problem = parse_problem(text)
    counted = lower(problem, schedule(*steps), host).counted_run(make_operands(problem, 0))
    assert counted["micro_kernels"] == tiles


def test_too_much_code_copies_the_padding_and_proves(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "memref.alloc" not in applied(DEPTHWISE, schedule(*JAMMED))
    monkeypatch.setattr(grouped_conv, "MOST_PRODUCTS", 100)
    assert "memref.alloc" in applied(DEPTHWISE, schedule(*JAMMED))
    proof = prove(parse_problem(DEPTHWISE), schedule(*JAMMED))
    assert proof.ok, proof.message


@pytest.mark.parametrize(("text", "step", "lanes"), some([
    (GROUPS, TILE[0], {"16", "8"}),  # 4 groups, and the 2 that are left
    (DEPTHWISE.replace("groups=16", "groups=8"), "register rows=3 cols=16 outer=cols", {"16"}),
    (DEPTHWISE.replace("groups=16", "groups=4"), "register rows=3 cols=16 outer=cols", {"16"}),
    ("conv2d:n=1,h=3,w=3,ci=16,co=32,kh=2,kw=2,groups=16,dtype=f32",
     "register rows=2 cols=12 outer=rows", {"12", "8"}),
], of=3))  # fmt: skip
def test_a_vector_has_whole_groups(text: str, step: str, lanes: set[str]) -> None:
    sums = re.findall(
        r"= arith.mulf (%\w+), (%\w+) .*: vector<(\d+)xf32>", applied(text, schedule(step))
    )
    assert {found for *_, found in sums} == lanes
    (first, weight, _), (second, same, _) = sums[:2]
    assert first != second and weight == same, "a tap meets all vectors of a tile"


@pytest.mark.parametrize(
    ("groups", "rows", "loops", "taps"), [(4, 1, 0, 18), (2, 2, 1, 12), (2, 4, 2, 4)]
)
def test_taps_of_planes_are_loops_where_their_products_are_many(groups, rows, loops, taps) -> None:
    """Weights of many taps in code without a loop would lie on the stack, as whole vectors."""
    problem = f"conv2d:n=1,h=12,w=16,ci=8,co=8,kh=3,kw=3,pad=1,layout=nchw_fchw,groups={groups}"
    text = applied(f"{problem},dtype=f32", schedule(f"register rows={rows} cols=16 outer=cols"))
    (kernel,) = read(text).kernels
    assert kernel.trips == [groups, 12 // rows, *[3] * loops]
    products = re.findall(r"arith.mulf .*: vector<16xf32>", text)
    assert len(products) == rows * 8 // groups * taps


PRODUCT = """
func.func @f(%a: vector<VECTOR>, %n: index) -> vector<VECTOR> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %r = scf.for %i = %zero to %n step %one iter_args(%c = %a) -> (vector<VECTOR>) {
    %p = arith.mulf %c, %a : vector<VECTOR>
    scf.yield %p : vector<VECTOR>
  }
  return %r : vector<VECTOR>
}
"""


def check(vector: str, columns: int, lanes: int) -> bool:
    with ir.Context(), ir.Location.unknown():
        module = ir.Module.parse(PRODUCT.replace("VECTOR", vector))
        return check_structure(module, columns, lanes)


def test_vectors_of_the_register_steps_columns_pass() -> None:
    assert check("32xf32", 64, 32)
    assert check("5x32xf32", 64, 32)


@pytest.mark.parametrize("vector", ["4xf32", "32x4xf32"])
def test_vectors_along_another_dim_do_not(vector: str) -> None:
    with pytest.raises(StageError, match=r"vectors of 4 .* 32 lanes") as caught:
        check(vector, 64, 32)
    assert caught.value.failure == "structure"


def test_with_one_column_there_need_be_none() -> None:
    assert check("4xf32", 1, 1)


@pytest.mark.parametrize(("keys", "said"), [
    ("ci=16,co=16,groups=16", None),
    ("ci=16,co=16,groups=16,pad=1", None),
    ("ci=16,co=16,groups=16,pad=1,layout=nchw_fchw", "copied with their padding"),
    ("ci=32,co=16,groups=16,pad=1,layout=nchw_fchw", "copied with their padding"),
    ("ci=16,co=32,groups=16", "spreads each group's channels"),
    ("ci=16,co=32,groups=16,layout=nchw_fchw", None),
    ("ci=16,co=16,groups=16,stride=2,layout=nchw_fchw", "parted"),
    ("ci=16,co=16,groups=16,stride=2,dilation=2,layout=nchw_fchw", "gathered plane by plane"),
    ("ci=32,co=16,groups=16,stride=2,layout=nchw_fchw", "gathered ahead"),
    ("ci=18,co=2,groups=2", "scalars"),  # nine inputs: each group is a product of its own
])  # fmt: skip
def test_scripts_of_groups_say_what_they_do_otherwise(keys: str, said: str | None) -> None:
    found = notes(parse_problem(f"conv2d:n=1,h=8,w=8,{keys},kh=3,kw=3,dtype=f32"))
    assert [said in note for note in found] == ([True] if said else [])


@pytest.mark.parametrize(("single", "more", "has_maps"), [
    ("m=16,n=1,k=8,dtype=f32", "m=16,n=2,k=8,dtype=f32", (True, False)),
    ("m=1,n=16,k=8,dtype=f32,transpose_a", "m=2,n=16,k=8,dtype=f32,transpose_a", (False, True)),
])  # fmt: skip
def test_a_single_row_or_column_is_seen_as_it_lies(single, more, has_maps) -> None:
    texts = [payload(parse_problem(f"matmul:{keys}")) for keys in (single, more)]
    assert "tensor<8xf32> into tensor<1x8xf32>" in texts[0]
    assert tuple("indexing_maps" in text for text in texts) == has_maps
