"""Specs: their configurations and text, what IREE's compiler makes of them, and their proofs."""

import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.cases import some
from tilewise.kernels.errors import CompilerError, LoweringError, ScheduleError, UnsupportedError
from tilewise.kernels.mlir.iree.compiler import compiled_text
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.proof.proof import ScriptProof
from tilewise.kernels.mlir.tuning_spec import prove as proving
from tilewise.kernels.mlir.tuning_spec.compiled import check_matched
from tilewise.kernels.mlir.tuning_spec.config import Configuration, LevelName, TileSize, read_steps
from tilewise.kernels.mlir.tuning_spec.form import check_covered, form_of
from tilewise.kernels.mlir.tuning_spec.prove import prove
from tilewise.kernels.mlir.tuning_spec.text import (
    SpecEntry,
    entry_of,
    joined,
    marks_in,
    matcher_key,
    outgrows_stack,
    spec_text,
)
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Register, Schedule, Unroll
from tilewise.kernels.target import detect

pytest.importorskip("iree.runtime", reason="IREE's runtime, which runs the code, is not installed")


def plain(problem: Problem, *more: TileSize, rows: int = 8, cols: int = 32) -> Configuration:
    """A tile of vectors in whole rows and a few columns, and `more` levels."""
    form = form_of(problem)
    high, wide = min(rows, form.extent(form.rows)), min(cols, form.extent(form.cols))
    share = {form.rows: form.extent(form.rows), form.cols: min(2 * wide, form.extent(form.cols))}
    tile = {form.rows: high, form.cols: wide}
    tiles = [*_level("distribution", {loop: share.get(loop, 1) for loop in form.parallel}), *more]
    tiles += _level("vector_common_parallel", {loop: tile.get(loop, 1) for loop in form.parallel})
    depth = min(4, form.extent(form.depth))
    tiles += _level(
        "vector_reduction", {loop: depth if loop == form.depth else 1 for loop in form.reduction}
    )
    is_window = form.op == "convolution"
    passes = "ConvTileAndDecomposeExpert" if is_window else "DoubleTilingExpert"
    return Configuration(tuple(tiles), passes, "peeled")


def _level(at: LevelName, sizes: dict[str, int]) -> list[TileSize]:
    return [TileSize(at, name, size) for name, size in sizes.items()]


COVERED = [
    "matmul:m=48,n=48,k=48,dtype=f32", "matmul:m=48,n=48,k=48,dtype=f32,transpose_a",
    "matmul:m=48,n=48,k=48,dtype=f32,transpose_b", "matmul:batch=3,m=32,n=64,k=48,dtype=f32",
    "matmul:batch=3,m=32,n=64,k=48,dtype=f32,transpose_b", "matmul:m=1,n=96,k=40,dtype=f32",
    "matmul:m=33,n=65,k=17,dtype=f64,bias,epilogue=relu", "matmul:m=32,n=64,k=48,dtype=bf16",
    "matmul:m=32,n=64,k=48,dtype=f16,weights=constant", "matmul:m=32,n=64,k=48,dtype=i8",
    "matmul:m=32,n=64,k=48,dtype=i32", "conv2d:n=1,h=6,w=7,ci=24,co=40,kh=1,kw=1,dtype=f32",
    "conv2d:n=1,h=6,w=7,ci=24,co=40,kh=1,kw=1,layout=nchw_fchw,dtype=i8",
    "conv2d:n=2,h=6,w=7,ci=24,co=40,kh=1,kw=1,layout=nchw_fchw,dtype=f32",
    "conv2d:n=2,h=7,w=9,ci=24,co=40,kh=1,kw=1,stride=2,dtype=f32",
    "conv2d:n=1,h=7,w=9,ci=24,co=40,kh=1,kw=1,stride=2,layout=nchw_fchw,dtype=f32",
    "conv2d:n=2,h=8,w=10,ci=8,co=40,kh=3,kw=2,pad=1,dtype=f32,bias,epilogue=relu",
    "conv2d:n=2,h=9,w=11,ci=8,co=24,kh=3,kw=3,stride=2,dilation=2,dtype=f32",
    "conv2d:n=2,h=8,w=10,ci=8,co=24,kh=3,kw=3,layout=nchw_fchw,dtype=bf16",
]  # fmt: skip


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


@pytest.mark.parametrize(("text", "field", "reason"), [
    ("conv2d:n=1,h=8,w=8,ci=8,co=8,kh=3,kw=3,dtype=f32", "n", "loses its sizes"),
    ("conv2d:n=2,h=8,w=8,ci=8,co=8,kh=3,kw=1,dtype=f32", "kh", "drops the dim"),
    ("conv2d:n=2,h=8,w=8,ci=8,co=8,kh=3,kw=3,groups=8,dtype=f32", "groups", "depthwise"),
    ("conv2d:n=2,h=8,w=2,ci=8,co=8,kh=1,kw=1,stride=2,dtype=f32", "stride", "single row"),
    ("matmul:m=8,n=8,k=8,dtype=f32,init=accumulate", "init", "init=zero"),
])  # fmt: skip
def test_what_no_spec_can_tune_is_refused_with_the_reason(text, field, reason) -> None:
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


@pytest.mark.parametrize(("tile", "said"), [
    (TileSize("distribution", "k", 8), "distribution tiles m, n"),
    (TileSize("cache_reduction", "m", 8), "cache_reduction tiles k"),
    (TileSize("cache_parallel", "m", 0), "give a size of 1 to 48"),
    (TileSize("cache_parallel", "m", 64), "give a size of 1 to 48"),
    (TileSize("distribution", "m", 8), "tiled twice"),
])  # fmt: skip
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
def test_sums_that_the_stack_cannot_hold_are_left_to_ops_that_store_them(size, is_large, tmp_path):
    """A model that fuses something behind the op compiles, with the entry or without it."""
    places = ("parallel", "m", size), ("parallel", "n", size), ("reduction", "k", 64)
    cut = [TileSize(f"cache_{kind}", dim, most) for kind, dim, most in places]
    problem = parse_problem("matmul:m=256,n=256,k=256,dtype=f32")
    made = plain(problem, *cut, cols=8 * detect().lanes("f32"))
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


PROBLEM = parse_problem("matmul:m=45,n=130,k=67,dtype=f32,bias,epilogue=relu")


def proof_of() -> ScriptProof:
    return prove(PROBLEM, plain(PROBLEM))


@pytest.mark.full
def test_a_proof_ran_compared_and_timed_beside_iree_alone() -> None:
    proof = proof_of()
    assert proof.applied and proof.executed
    assert proof.max_error is not None and proof.tolerance is not None
    assert proof.max_error <= proof.tolerance
    assert proof.failure in (None, "slower")  # which of them says the machine
    if proof.failure == "slower":
        assert re.search(r"IREE alone is faster: .* gain 0\.\d", proof.message)
        assert "// unproven: slower" in proof.script
    else:
        assert all(float(gain) >= 0.99 for gain in re.findall(r"gain ([\d.]+)", proof.script))
        assert entry_of(proof.script).config == plain(PROBLEM)


@pytest.mark.full
def test_constant_weights_are_given_to_the_module() -> None:
    problem = parse_problem("matmul:m=24,n=64,k=40,dtype=bf16,weights=constant")
    proof = prove(problem, plain(problem))
    assert proof.executed and proof.failure in (None, "slower")


def test_sizes_that_iree_refuses_fail_to_compile() -> None:
    problem = parse_problem("matmul:m=512,n=512,k=512,dtype=f32,bias")
    cut = [TileSize("cache_parallel", "m", 256), TileSize("cache_reduction", "k", 64)]
    proof = prove(problem, plain(problem, *cut))
    assert (proof.failure, proof.executed) == ("apply", False)  # none but the unfused op takes them
    assert "no op matched" in proof.message


def test_a_result_that_is_wrong_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code of another problem of the same shapes: it runs, and computes no relu."""
    other = parse_problem("matmul:m=45,n=130,k=67,dtype=f32,bias")
    compiled = proving.compile_with
    monkeypatch.setattr(
        proving, "compile_with", lambda text, problem, seconds: compiled(
            proving.spec_text([proving.SpecEntry(other, plain(other))]), other, seconds
        )
    )  # fmt: skip
    proof = proof_of()
    assert (proof.failure, proof.applied, proof.executed) == ("wrong", True, True)


def test_a_spec_that_nothing_was_timed_beside_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the time may be over before IREE's own modes have compiled."""

    def slow(_text: str, _flags: tuple[str, ...], seconds: float) -> bytes:
        time.sleep(seconds)
        raise CompilerError(f"no code after {seconds:.0f} s")

    monkeypatch.setattr(proving, "compile_with", lambda *_: b"")
    monkeypatch.setattr(proving, "compile_module", slow)
    proof = prove(PROBLEM, plain(PROBLEM), seconds=0.2)
    assert (proof.failure, proof.ok) == ("timeout", False)
    assert proof.message == "no time to compare with IREE's default: no code after 0 s"


def test_one_file_has_each_op_once() -> None:
    texts = ("bias", "bias,epilogue=relu", "weights=constant", "transpose_b")
    problems = [parse_problem(f"matmul:m=16,n=32,k=8,dtype=f32,{more}") for more in texts]
    entries = [proving.SpecEntry(problem, plain(problem)) for problem in problems]
    text, left_out = joined(entries)
    assert [one.problem for one in left_out] == [problems[1].canonical]
    assert left_out[0].reason == f"its op is matched by the entry of {problems[0]}"
    assert text.count("-> @apply_op_config") == 3


PIPELINE = {"step": "pipeline", "passes": "DoubleTilingExpert", "remainders": "peeled"}
ROWS = {"step": "level", "at": "distribution", "dim": "m", "size": 64}
STEPS = [ROWS, {"step": "level", "at": "vector_reduction", "dim": "k", "size": 4}, PIPELINE]
TILES = (TileSize("distribution", "m", 64), TileSize("vector_reduction", "k", 4))
CONFIG = Configuration(TILES, "DoubleTilingExpert", "peeled")


def test_stored_steps_become_what_they_were() -> None:
    assert read_steps(STEPS) == CONFIG
    assert json.dumps(CONFIG.to_json()) == json.dumps(STEPS)
    assert CONFIG.hash == "b5a2ea35e0b1a999"  # by which it is stored
    schedule = Schedule((Register(4, 16), Unroll(2)))
    assert read_steps(schedule.to_json()) == schedule


def test_each_step_is_a_line() -> None:
    assert str(CONFIG).splitlines() == [
        "level at=distribution dim=m size=64",
        "level at=vector_reduction dim=k size=4",
        "pipeline passes=DoubleTilingExpert remainders=peeled",
    ]


@pytest.mark.parametrize(("steps", "said"), [
    ([ROWS], "level, then one pipeline; not level"),
    ([PIPELINE, ROWS], "not pipeline, level"),
    ([PIPELINE, PIPELINE], "not pipeline, pipeline"),
    ([ROWS, Unroll(4).to_json(), PIPELINE], "not level, unroll, pipeline"),
    ([ROWS, "k", PIPELINE], "not level, None, pipeline"),
    ([ROWS | {"parts": 2}, PIPELINE], r"tiles\[0\] has the fields .*'parts'"),
    ([ROWS | {"at": "l2"}, PIPELINE], "at is 'l2', not one of distribution, "),
    ([ROWS | {"at": ["l2"]}, PIPELINE], "not one of distribution, "),
    ([ROWS, ROWS | {"dim": 3}, PIPELINE], r"tiles\[1\].dim is 3, not of type str"),
    ([ROWS | {"size": True}, PIPELINE], "size is True, not of type int"),
    ([PIPELINE | {"passes": "CPUDefault"}], "passes is 'CPUDefault', not one of Double"),
    ([ROWS, PIPELINE | {"tiles": 2}], "tiles is 2, not of type list"),
])  # fmt: skip
def test_what_is_none_says_which_field(steps: list[Any], said: str) -> None:
    with pytest.raises(ScheduleError, match=said):
        read_steps(steps)


@pytest.mark.parametrize("steps", [[], "level", Schedule((Register(4, 16),)).to_json()])
def test_no_configuration_is_made_of_other_values(steps: object) -> None:
    with pytest.raises(ScheduleError):
        Configuration.from_json(steps)


def test_a_schedule_has_no_level() -> None:
    with pytest.raises(
        ScheduleError, match=r"'level', .* no step of a schedule for a target cpu:NAME"
    ):
        Schedule.from_json(STEPS)
