"""The text of specs, and what IREE's compiler makes of it: each entry takes its op, no other."""

import re
from dataclasses import replace

import pytest

from tests.cases import some
from tests.kernels.mlir.tuning_spec.schedules import plain
from tilewise.kernels.errors import LoweringError, ScheduleError, UnsupportedError
from tilewise.kernels.mlir.iree.compiler import compiled_text
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.tuning_spec.compiled import check_matched
from tilewise.kernels.mlir.tuning_spec.config import Configuration, TileSize
from tilewise.kernels.mlir.tuning_spec.form import check_covered, form_of
from tilewise.kernels.mlir.tuning_spec.text import (
    SpecEntry,
    marks_in,
    matcher_key,
    outgrows_stack,
    spec_text,
)
from tilewise.kernels.problem import parse_problem

COVERED = [
    "matmul:m=48,n=48,k=48,dtype=f32",
    "matmul:m=48,n=48,k=48,dtype=f32,transpose_a",
    "matmul:m=48,n=48,k=48,dtype=f32,transpose_b",
    "matmul:batch=3,m=32,n=64,k=48,dtype=f32",
    "matmul:batch=3,m=32,n=64,k=48,dtype=f32,transpose_b",
    "matmul:m=1,n=96,k=40,dtype=f32",
    "matmul:m=33,n=65,k=17,dtype=f64,bias,epilogue=relu",
    "matmul:m=32,n=64,k=48,dtype=bf16",
    "matmul:m=32,n=64,k=48,dtype=f16,weights=constant",
    "matmul:m=32,n=64,k=48,dtype=i8",
    "matmul:m=32,n=64,k=48,dtype=i32",
    "conv2d:n=1,h=6,w=7,ci=24,co=40,kh=1,kw=1,dtype=f32",
    "conv2d:n=1,h=6,w=7,ci=24,co=40,kh=1,kw=1,layout=nchw_fchw,dtype=i8",
    "conv2d:n=2,h=6,w=7,ci=24,co=40,kh=1,kw=1,layout=nchw_fchw,dtype=f32",
    "conv2d:n=2,h=7,w=9,ci=24,co=40,kh=1,kw=1,stride=2,dtype=f32",
    "conv2d:n=1,h=7,w=9,ci=24,co=40,kh=1,kw=1,stride=2,layout=nchw_fchw,dtype=f32",
    "conv2d:n=2,h=8,w=10,ci=8,co=40,kh=3,kw=2,pad=1,dtype=f32,bias,epilogue=relu",
    "conv2d:n=2,h=9,w=11,ci=8,co=24,kh=3,kw=3,stride=2,dilation=2,dtype=f32",
    "conv2d:n=2,h=8,w=10,ci=8,co=24,kh=3,kw=3,layout=nchw_fchw,dtype=bf16",
]


def entry(text: str, *more: TileSize) -> SpecEntry:
    problem = parse_problem(text)
    return SpecEntry(problem, plain(problem, *more))


@pytest.mark.full
def test_every_entry_of_one_file_takes_its_own_op_and_no_other() -> None:
    entries = [entry(text) for text in COVERED]
    check_matched(spec_text(entries), [one.problem for one in entries])


def test_an_op_without_an_entry_is_left_to_iree() -> None:
    """The same extents, another transpose: nothing is matched, and that is told."""
    text = spec_text([entry("matmul:m=48,n=48,k=48,dtype=f32")])
    other = parse_problem("matmul:m=48,n=48,k=48,dtype=f32,transpose_b")
    with pytest.raises(LoweringError, match=r"its op was matched by nothing"):
        check_matched(text, [other])


def test_a_problem_and_the_same_with_an_epilogue_have_entries_of_their_own() -> None:
    entries = [entry(f"matmul:m=48,n=48,k=48,dtype=f32{more}") for more in (",bias", "")]
    assert len({matcher_key(one.problem) for one in entries}) == 1
    check_matched(spec_text(entries), [one.problem for one in entries])


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        ("conv2d:n=1,h=8,w=8,ci=8,co=8,kh=3,kw=3,dtype=f32", "n", "loses its sizes"),
        ("conv2d:n=2,h=8,w=8,ci=8,co=8,kh=3,kw=1,dtype=f32", "kh", "drops the dim"),
        ("conv2d:n=2,h=8,w=8,ci=8,co=8,kh=3,kw=3,groups=8,dtype=f32", "groups", "depthwise"),
        ("conv2d:n=2,h=8,w=2,ci=8,co=8,kh=1,kw=1,stride=2,dtype=f32", "stride", "single row"),
        ("matmul:m=8,n=8,k=8,dtype=f32,init=accumulate", "init", "init=zero"),
    ],
)
def test_what_no_spec_can_tune_is_refused_with_the_reason(
    text: str, field: str, reason: str
) -> None:
    problem = parse_problem(text)
    with pytest.raises(UnsupportedError, match=reason) as refused:
        check_covered(problem, "iree:znver4,threads=1")
    assert refused.value.field == field
    check_covered(problem, "cpu:znver4,threads=1")


def test_the_order_of_a_levels_tiles_is_its_interchange() -> None:
    problem = parse_problem("matmul:m=48,n=64,k=32,dtype=f32")
    tiles = (
        TileSize("distribution", "n", 32),
        TileSize("distribution", "m", 48),
        TileSize("vector_common_parallel", "m", 8),
        TileSize("vector_common_parallel", "n", 32),
        TileSize("vector_reduction", "k", 2),
    )
    config = Configuration(tiles, "DoubleTilingExpert", "masked")
    text = spec_text([SpecEntry(problem, config)])
    assert "distribution = {sizes = [48, 32, 0], interchange = [1, 0, 2]}" in text
    assert "vector_common_parallel = [8, 32, 0], vector_reduction = [0, 0, 2]" in text
    assert "peeling" not in text


@pytest.mark.parametrize(
    ("tile", "said"),
    [
        (TileSize("distribution", "k", 8), "distribution tiles m, n"),
        (TileSize("cache_reduction", "m", 8), "cache_reduction tiles k"),
        (TileSize("cache_parallel", "m", 0), "give a size of 1 to 48"),
        (TileSize("cache_parallel", "m", 64), "give a size of 1 to 48"),
        (TileSize("distribution", "m", 8), "tiled twice"),
    ],
)
def test_tiles_of_other_loops_are_refused(tile: TileSize, said: str) -> None:
    problem = parse_problem("matmul:m=48,n=64,k=32,dtype=f32")
    with pytest.raises(ScheduleError, match=said):
        spec_text([SpecEntry(problem, plain(problem, tile))])


FUSED = """
func.func @fused(%a: tensor<256x256xf32>, %b: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<256x256xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<256x256xf32>) -> tensor<256x256xf32>
  %c = linalg.matmul ins(%a, %b : tensor<256x256xf32>, tensor<256x256xf32>)
    outs(%fill : tensor<256x256xf32>) -> tensor<256x256xf32>
  %d = linalg.generic {
    indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j, i)>],
    iterator_types = ["parallel", "parallel"]}
    ins(%c : tensor<256x256xf32>) outs(%empty : tensor<256x256xf32>) {
  ^bb0(%x: f32, %y: f32):
    %e = math.erf %x : f32
    linalg.yield %e : f32
  } -> tensor<256x256xf32>
  return %d : tensor<256x256xf32>
}
"""


@pytest.mark.parametrize(("size", "is_large"), some([(128, True), (64, False)], of=2))
def test_sums_that_the_stack_cannot_hold_are_left_to_ops_that_store_them(
    size: int, is_large: bool, tmp_path
) -> None:
    """A model that fuses something behind the op compiles, with the entry or without it."""
    cut = [
        TileSize("cache_parallel", "m", size),
        TileSize("cache_parallel", "n", size),
        TileSize("cache_reduction", "k", 64),
    ]
    problem = parse_problem("matmul:m=256,n=256,k=256,dtype=f32")
    made = plain(problem, *cut, cols=128)
    tiles = [replace(t, size=256) if t.at == "distribution" else t for t in made.tiles]
    config = replace(made, tiles=tuple(tiles))
    assert outgrows_stack(form_of(problem), config) == is_large
    path = tmp_path / "spec.mlir"
    path.write_text(spec_text([SpecEntry(problem, config)]))
    flags = (f"--iree-codegen-tuning-spec-path={path}",)
    alone = compiled_text(module_text(problem), "executable-targets", flags)
    fused = compiled_text(FUSED, "executable-configurations", flags)
    assert "llvm.func" in alone
    assert marks_in(fused) == ([] if is_large else [problem.canonical])
    assert "llvm.func" in compiled_text(FUSED, "executable-targets", flags)


def test_a_header_tells_what_it_is() -> None:
    text = spec_text([entry(COVERED[0])], ["target:   iree:znver4,threads=1"])
    assert text.startswith("// flavor:   iree-spec\n// target:   iree:znver4,threads=1\n//\n")
    assert re.search(r"// matmul:m=48,n=48,k=48,dtype=f32\n +transform.named_sequence", text)
