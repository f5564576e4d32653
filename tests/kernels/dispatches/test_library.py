"""What libraries take and leave alone, in which layouts, and what their kernels compute."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples.models.graph import Graph
from examples.models.graph import Value as Given
from examples.models.spellings import spelled
from tests.kernels.dispatches.matching import (
    TARGET,
    found_in,
    function,
    generic,
    library_of,
    module_of,
    name_of,
    op,
    preprocessed,
    random_arrays,
    stand_in,
    tensor,
    zeros,
)
from tilewise.kernels.dispatches.compilation import calls_in, compiled_with
from tilewise.kernels.dispatches.compilation import preprocessed as with_library
from tilewise.kernels.dispatches.executable import LibraryEntry, compiled
from tilewise.kernels.dispatches.extraction.extract import cut_module, patterns_of
from tilewise.kernels.dispatches.layouts import CallLines, check_layouts, laid
from tilewise.kernels.dispatches.library import FLAG, library_text, text_of
from tilewise.kernels.dispatches.patterns.graph import Value
from tilewise.kernels.errors import CompilerError, UnsupportedError
from tilewise.kernels.mlir.iree.compiler import compile_module
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.mlir.iree.runtime import ELEMENTS, LoadedModule, open_device
from tilewise.kernels.mlir.payload.function import ENTRY
from tilewise.kernels.oracle.operands import Array, poison
from tilewise.kernels.problem import Conv2d, Matmul, parse_problem
from tilewise.kernels.schedule import InstructionChoice, Pack, Register, Schedule, Tile
from tilewise.kernels.target import Target, detect
from tilewise.kernels.target.machine import described

pytest.importorskip("iree.runtime", reason="iree-base-runtime is not installed")

PLAIN = "matmul:m=9,n=33,k=19,dtype=f32"
RELU, BIAS = f"{PLAIN},epilogue=relu", f"{PLAIN},bias"
BOTH = f"{PLAIN},bias,epilogue=relu"
A, B, C = tensor(9, 19), tensor(19, 33), tensor(9, 33)
MAXIMUM = "%end = arith.maximumf %x0, %zero : f32"
SUMS = zeros("f", C) + op("p", "matmul", {"%a": A, "%b": B}, "%f", C)
TWO_USERS = function(
    {"a": A, "b": B}, f"({C}, {C})", SUMS, generic("r", "i j -> i j", {"%p": C}, "%f_e", C, MAXIMUM)
).replace(f"return %r : ({C}, {C})", f"return %r, %p : {C}, {C}")
ROWS, RESULT = tensor("?", 19), tensor("?", 33)
DYNAMIC = function(
    {"a": ROWS, "b": B, "n": "index"}, RESULT, zeros("f", RESULT, "%n"),
    op("r", "matmul", {"%a": ROWS, "%b": B}, "%f", RESULT), name="dynamic"
)  # fmt: skip


def test_fused_ops_are_taken_whole_and_others_one_by_one() -> None:
    found = found_in(module_of(PLAIN, RELU, BIAS, BOTH), library_of(PLAIN, RELU, BIAS, BOTH))
    assert found == {f"f{at}": [name_of(text)] for at, text in enumerate((PLAIN, RELU, BIAS, BOTH))}
    assert found_in(module_of(RELU, BOTH), library_of(PLAIN)) == {
        "f0": [name_of(PLAIN)],
        "f1": [name_of(PLAIN)],
    }


def test_a_value_with_a_second_user_is_computed_once() -> None:
    assert found_in(TWO_USERS, library_of(PLAIN, RELU)) == {"main": [name_of(PLAIN)]}
    assert found_in(TWO_USERS, library_of(RELU)) == {}


def test_near_misses_are_left_alone() -> None:
    image = "conv2d:n=1,h=9,w=9,ci=6,co=10,kh=1,kw=1,dtype=f32"
    module = module_of("matmul:m=9,n=33,k=19,dtype=i32", f"{image},stride=2", BIAS) + DYNAMIC
    library = library_of(PLAIN.replace("n=33", "n=32"), image, RELU, f"{PLAIN},transpose_b")
    assert found_in(module, library) == {}
    # h=9 with stride 2 and h=5 without give the same result's shape, and other operands
    strided = "conv2d:n=1,h=5,w=5,ci=6,co=10,kh=3,kw=3,dtype=f32"
    assert found_in(module_of(f"{strided},dilation=2"), library_of(f"{strided},stride=3")) == {}


def test_only_weights_that_are_constants_are_packed_ahead() -> None:
    constant = f"{PLAIN},weights=constant"
    assert found_in(module_of(PLAIN, constant), library_of(constant)) == {"f1": [name_of(constant)]}
    assert found_in(module_of(PLAIN, constant), library_of(constant, PLAIN)) == {
        "f0": [name_of(PLAIN)],
        "f1": [name_of(constant)],
    }
    assert found_in(module_of(constant), library_of(PLAIN)) == {"f0": [name_of(PLAIN)]}


@pytest.mark.parametrize("packed_bytes", [64, 1 << 25])
def test_iree_packs_constant_weights_where_a_module_is_loaded(packed_bytes: int) -> None:
    """Also where packed weights are larger by more than IREE moves by itself."""
    constant = f"{PLAIN},weights=constant"
    library = text_of([stand_in(constant, packed_bytes=packed_bytes)], TARGET)
    text = preprocessed(module_of(constant), library, phase="flow")
    before, _, function = text.partition("util.func public @f0")
    assert f"@{name_of(constant)}_executable::@prepare" in before.partition("util.initializer")[2]
    assert "@run" in function
    assert "@prepare" not in function


def test_parts_are_workgroups() -> None:
    text = preprocessed(module_of(PLAIN), text_of([stand_in(PLAIN, parts=3)], TARGET))
    call = re.search(rf"call @{name_of(PLAIN)}_part\(.*\) : \((.*)\) -> i64", text)
    assert call is not None
    assert call[1].endswith("i64")
    assert "hal.interface.workgroup.id[0]" in text


def test_the_head_says_what_is_there_and_what_is_not() -> None:
    library = text_of([stand_in(PLAIN)], TARGET, ["Left out: another"])
    head = [line for line in library.splitlines() if line.startswith("//")]
    assert "// Left out: another" in head
    assert any(PLAIN in line for line in head)
    assert any(TARGET.canonical in line for line in head)


FLAGS = [
    "--iree-llvmcpu-link-embedded=false",
    "--iree-llvmcpu-target-cpu=generic",
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling",
]
PRODUCT = Matmul(m=9, n=33, k=19, dtype="f32", bias=True, epilogue="relu")


def library_for(target: Target) -> str:
    """With panels, which are memory that IREE has to give."""
    steps = Tile("n", 32), Pack("B"), Tile("m", 8), Pack("A"), Register(4, target.lanes("f32"))
    return library_text([LibraryEntry(PRODUCT, Schedule(steps))], target)


@pytest.mark.full
@pytest.mark.parametrize("flag", FLAGS)
def test_no_flag_of_the_compiler_changes_what_is_computed(flag: str, host: Target) -> None:
    made = compiled_with(module_text(PRODUCT), library_for(host), (flag,))
    assert len(made.kernels) == 1
    arrays = random_arrays((9, 19), (19, 33), (33,), (9, 33))
    a, b, bias, out = arrays
    poison(out)
    LoadedModule(made.code, open_device(1)).bind(ENTRY, [(one, "f32") for one in arrays])(1)
    np.testing.assert_allclose(out, np.maximum(a @ b + bias, 0), atol=1e-5)


def test_another_architecture_does_not_link(host: Target) -> None:
    flags = (
        "--iree-llvmcpu-target-triple=aarch64-unknown-linux-gnu",
        "--iree-llvmcpu-target-cpu=generic",
    )
    with pytest.raises(CompilerError):
        compiled_with(module_text(PRODUCT), library_for(host), flags)


def test_a_library_that_finds_nothing_says_so_here(host: Target) -> None:
    other = Matmul(m=9, n=33, k=18, dtype="f32", bias=True, epilogue="relu")
    assert calls_in(with_library(module_text(other), library_for(host))) == ()


PROBLEM = "matmul:m=64,n=96,k=64,dtype=bf16"
TILES = Schedule((Pack("B"), InstructionChoice("x86.amx.tdpbf16ps"), Register(32, 32, "rows")))
VECTORS = Schedule((Pack("B"), Pack("A"), Register(4, 32)))
SERVER = described("sapphirerapids", ("avx512f", "avx512bw", "fma", "avx2", "amx-tile", "amx-bf16"))
SHIM = re.compile(r"func\.func @(run|prepare)_[^{]*\{(.*?)return", re.DOTALL)


def asking(schedule: Schedule) -> dict[str, bool]:
    """Whether the shims ask, by what they do."""
    entry = LibraryEntry(parse_problem(f"{PROBLEM},weights=constant"), schedule)
    shims = SHIM.findall(library_text([entry], SERVER))
    return {does: '"syscall"' in body for does, body in shims}


def test_only_calls_that_use_tiles_ask() -> None:
    assert asking(TILES) == {"run": True, "prepare": False}
    assert asking(VECTORS) == {"run": False, "prepare": False}


def test_a_program_that_never_asked_runs_a_library(host: Target, tmp_path: Path) -> None:
    if "amx-tile" not in host.features:
        pytest.skip("this machine has no amx-tile")
    problem = parse_problem(PROBLEM)
    made = compiled_with(module_text(problem), library_text([LibraryEntry(problem, TILES)], host))
    assert len(made.kernels) == 1
    (tmp_path / "module.vmfb").write_bytes(made.code)
    inputs = ("64x64xbf16=1", "64x96xbf16=2", "64x96xf32=0")
    program = Path(sys.executable).with_name("iree-run-module")
    done = subprocess.run(
        [program, "--module=module.vmfb", f"--function={ENTRY}", "--device=local-sync",
         *(f"--input={one}" for one in inputs), "--output=@out.bin"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done
    assert (np.fromfile(tmp_path / "out.bin", np.float32) == np.full(64 * 96, 2.0 * 64)).all()


NARROW = "conv2d:n=1,h=9,w=9,ci=8,co=8,kh=3,kw=3,pad=1,dtype=f32"
WIDE = "conv2d:n=1,h=11,w=11,ci=8,co=8,kh=3,kw=3,dtype=f32"
OTHER_LAYOUT = {"nchw_fchw": "nhwc_hwcf", "nhwc_hwcf": "nchw_fchw"}


def moved(found: Conv2d) -> Conv2d:
    """The problem in the other order of axes, its zeros in the image."""
    wide = found.h + 2 * found.pad, found.w + 2 * found.pad
    return replace(found, layout=OTHER_LAYOUT[found.layout], h=wide[0], w=wide[1], pad=0)


@pytest.mark.full
def test_a_chain_in_another_layout(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra `peers` installs torch, which computes it")
    from examples.models.pytorch import reference

    graph = Graph("chain", Given("given", (1, 5, 7, 6)))
    x = graph.conv(graph.given, 10, 3)
    y = graph.add(graph.conv(x, 10, 3, relu=False), x, relu=True)
    graph.conv(y, 9, 1)
    source = spelled(graph, "torch")
    cuts, target = cut_module(source.encode()), detect()
    schedule = Schedule((Pack("B"), Register(2, target.lanes("f32"))))
    kernels = []
    for cut in cuts:
        found = parse_problem(cut.problem)
        assert isinstance(found, Conv2d)
        kernels.append(compiled(LibraryEntry(moved(found), schedule, found), target))
    library = text_of(kernels, target, cuts=patterns_of(cuts))
    after = with_library(source, library)
    assert sorted(calls_in(after)) == sorted(kernel.name for kernel in kernels)
    # Of three filters, which IREE transposes when it compiles, of the argument, and of the result.
    # The second convolution adds the image that it pads: its pad stays before the kernel, and is
    # written in the module's own order.
    assert (after.count("= linalg.transpose"), after.count("= tensor.pad")) == (7, 1)
    argument = graph.argument(2)
    (tmp_path / "library.mlir").write_text(library)
    code = compile_module(source, (f"{FLAG}={tmp_path / 'library.mlir'}",))
    got = _result(code, argument)
    expected = reference(graph, argument)
    assert np.sqrt(np.mean((got - expected) ** 2)) < 1e-5 * np.sqrt(np.mean(expected**2))


def _result(code: bytes, argument: Array) -> Array:
    module = LoadedModule(code, open_device(1))
    (name,) = [one for one in module.functions() if not one.startswith("__") and "$" not in one]
    given = np.ascontiguousarray(argument.transpose(0, 3, 1, 2))
    return module.results(name, [(given, ELEMENTS["f32"])])[0]


def test_problems_that_share_a_kernel_are_all_found() -> None:
    """Zeros around an image are a part of the op, or of the image before it."""
    found = [parse_problem(text) for text in (NARROW, WIDE)]
    kernels = []
    for one in found:
        assert isinstance(one, Conv2d)
        kernels.append(replace(stand_in(moved(one).canonical), stands_for=one))
    name = kernels[0].name
    assert kernels[1].name == name
    for order in (kernels, kernels[::-1]):
        library = text_of(order, TARGET)
        assert found_in(module_of(NARROW, WIDE), library) == {"f0": [name], "f1": [name]}
    assert text_of([*kernels, *kernels], TARGET) == library


@pytest.mark.parametrize("layout", sorted(OTHER_LAYOUT))
def test_operands_are_laid_as_the_kernel_has_them(layout: str) -> None:
    keys = "n=2,h=9,w=7,ci=4,co=8,kh=3,kw=5,pad=2"
    found = parse_problem(f"conv2d:{keys},layout={layout},dtype=f32")
    assert isinstance(found, Conv2d)
    kernel = moved(found)
    made = {
        name: laid(CallLines(), found, kernel, name, Value(f"%{name}", shape, "f32")).shape
        for name, shape in found.operand_shapes.items()
    }
    assert made == kernel.operand_shapes


def test_another_problem_is_refused() -> None:
    found = parse_problem(NARROW)
    assert isinstance(found, Conv2d)
    for other in (
        "conv2d:n=1,h=9,w=9,ci=8,co=16,kh=3,kw=3,pad=1,dtype=f32",
        "conv2d:n=1,h=9,w=9,ci=8,co=8,kh=3,kw=3,dtype=f32",
        "conv2d:n=1,h=2,w=2,ci=8,co=8,kh=1,kw=1,dtype=f32",
        "matmul:m=1,n=24,k=64,dtype=f32",
    ):
        with pytest.raises(UnsupportedError, match="in no layout of an image"):
            check_layouts(found, parse_problem(other))
    with pytest.raises(UnsupportedError, match="in no layout of an image"):
        check_layouts(parse_problem(WIDE), found)
    check_layouts(found, moved(found))
    check_layouts(found, found)
