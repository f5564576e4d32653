"""Exported kernels: they stand alone, are right, and refuse what they are not for."""

import ast
import importlib.util
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.cases import some
from tilewise.kernels.native.export.description import Tuned
from tilewise.kernels.native.export.module import export
from tilewise.kernels.nest import Role, nest_of
from tilewise.kernels.oracle.operands import make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import (
    Nontemporal,
    Pack,
    Parallel,
    Register,
    Schedule,
    Split,
    Step,
    Strassen,
    Stream,
    Tile,
    Unroll,
    Winograd,
)
from tilewise.kernels.target import Target

TINY = Target("testcpu", features=frozenset({"avx2", "fma"}), vector_bytes=32, vector_registers=16)


def goto(target: Target, dtype: str) -> Schedule:
    """Every step, with blocks that divide nothing."""
    lanes = target.lanes(dtype)
    blocks = Tile("n", 3 * lanes), Stream("k", 48), Pack("B"), Tile("m", 20), Pack("A")
    return Schedule((*blocks, Register(4, lanes), Unroll(3)))


def nest_for(problem: Problem, target: Target) -> Schedule:
    """Schedules of the one or the other sort, without the dims that are visited singly."""
    register = Register(3, target.lanes("f32"))
    if nest_of(problem).image == "B":
        return Schedule((Stream("k", 8), Pack("B"), Pack("A"), register))
    if problem.op == "conv2d":
        return Schedule((Pack("B"), Tile("n", 1), Tile("oh", 4), Pack("A"), register))
    return goto(target, problem.element.name)


def load(text: str, folder: Path) -> ModuleType:
    path = folder / "exported.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_alone(text: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a module as a user does who has numba and numpy, and nothing of ours."""
    path = folder / "alone.py"
    path.write_text(text)
    command = [sys.executable, "-I", str(path)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_sums_that_go_on_need_a_result_to_add_to(host: Target, tmp_path: Path) -> None:
    problem = parse_problem("matmul:m=13,n=33,k=51,dtype=i32,init=accumulate,bias,epilogue=relu")
    module = load(export(problem, goto(host, "i32"), host), tmp_path)
    operands = make_operands(problem, 7)
    expected, out = reference(problem, operands).value, operands["C"].copy()
    with pytest.raises(ValueError, match="give out"):
        module.matmul(operands["A"], operands["B"], bias=operands["bias"])
    result = module.matmul(operands["A"], operands["B"], out, operands["bias"])
    assert result is out and np.array_equal(out, expected)


@pytest.mark.parametrize("dtype", some(["bf16", "f32", "i8"], of=3))
def test_an_exported_split_reduction_is_right(dtype: str, host: Target, tmp_path: Path) -> None:
    problem = parse_problem(f"matmul:m=61,n=3,k=127,dtype={dtype},bias,epilogue=relu")
    split = Split("k", host.lanes(dtype))
    schedule = Schedule((Stream("k", 100), Pack("B"), Register(4, 2), split, Unroll(2)))
    done = run_alone(export(problem, schedule, host), tmp_path)
    assert done.returncode == 0, done.stderr


PLAIN = (
    "matmul:batch=3,m=19,n=37,k=70,dtype=f32,bias,epilogue=relu",
    "matmul:m=19,n=37,k=71,dtype=f16,transpose_b",
    "conv2d:n=1,h=7,w=9,ci=8,co=36,kh=3,kw=3,pad=1,groups=2,dtype=bf16",
    "conv3d:n=1,d=4,h=7,w=9,ci=4,co=18,kd=2,kh=3,kw=3,pad=1,layout=ncdhw_fcdhw,dtype=f32,bias",
    "matmul:m=21,n=35,k=53,dtype=i32,init=accumulate",
    "conv2d:n=1,h=7,w=9,ci=4,co=18,kh=3,kw=3,pad=1,dtype=u8,zero=a,out=u8,requant=tensor",
    "conv2d:n=2,h=7,w=9,ci=4,co=18,kh=3,kw=3,stride=3,groups=2,layout=nchw_fchw,dtype=i8,bias",
)
FILTERED = "conv2d:n=2,h=9,w=11,ci=5,co=40,dtype=f32,bias"
PADDED = "pad=3,layout=nchw_fchw"  # some outputs see zeros alone
TILES = (Pack("B"), Tile("t", 4), Pack("A"), Register(2, 32))
OTHERS: list[tuple[str, tuple[Step, ...]]] = [
    # A kernel of whole lines packs nothing, and has no edges of its own.
    ("conv2d:n=1,h=5,w=7,ci=23,co=23,kh=3,kw=3,pad=1,groups=23,dtype=f32", (Register(2, 64),)),
    (f"{FILTERED},kh=3,kw=3,{PADDED}", (Winograd(4), *TILES)),
    (f"{FILTERED},kh=3,kw=3,weights=constant", (Winograd(4), Tile("co", 32), *TILES)),
    ("matmul:m=13,n=72,k=40,dtype=f32,transpose_b,bias,weights=constant", (Strassen(2), *TILES)),
    # Stores past the caches: what marks them lies outside of functions.
    ("conv2d:n=1,h=6,w=7,ci=5,co=48,kh=3,kw=3,dtype=f32", (Winograd(2), *TILES, Nontemporal())),
    ("conv2d:n=1,h=8,w=7,ci=64,co=64,kh=3,kw=3,groups=64,dtype=f32",
     (Register(1, 16), Nontemporal())),
    ("matmul:m=50,n=130,k=33,dtype=f32,bias",
     (Parallel("m", 2), Parallel("n", 2), Stream("k", 16), Pack("B"), Register(4, 32))),
    ("conv2d:n=2,h=9,w=11,ci=5,co=33,kh=3,kw=3,pad=1,dtype=f32",
     (Parallel("oh", 3), Pack("B"), Tile("n", 1), Pack("A"), Register(4, 16))),
]  # fmt: skip


@pytest.mark.parametrize(("text", "steps"), some([*product(PLAIN, [()]), *OTHERS], all_of=2))
def test_a_module_checks_itself(text, steps, host, tmp_path) -> None:
    problem, target = parse_problem(text), host.with_threads(4)
    if not steps:
        lead = (Tile(dim, 1) for dim in nest_of(problem).named(Role.LEAD))
        steps = (*lead, *nest_for(problem, host).steps)
    source = export(problem, Schedule(steps), target)
    assert ("!nontemporal !0" in source) == (Nontemporal() in steps)
    done = run_alone(source, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"OK {problem}: ")
    assert "GFLOP/s" in done.stdout
    assert not done.stderr


def test_a_module_of_fewer_products_says_how_it_rounds(host: Target) -> None:
    problem = parse_problem("conv2d:n=1,h=6,w=6,ci=8,co=16,kh=3,kw=3,dtype=f32")
    packs = Pack("B"), Pack("A")
    tuned = Tuned(1.0, 0.5, "none", {"gaussian": 1.5, "scaled": 2.25})
    text = export(problem, Schedule((Winograd(2), *packs, Register(2, 16))), host, tuned)
    assert "by fewer products (step winograd)" in text and "up to 2.25 times" in text
    direct = export(problem, Schedule((packs[0], Register(2, 16))), host, tuned)
    assert "fewer products" not in direct


def test_the_self_check_sees_a_wrong_kernel(host: Target, tmp_path: Path) -> None:
    problem = parse_problem("matmul:m=8,n=16,k=8,dtype=f32")
    text = export(problem, Schedule((Register(2, host.lanes("f32")),)), host)
    assert "k_extent = 8" in text
    done = run_alone(text.replace("k_extent = 8", "k_extent = 7"), tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("WRONG: matmul:m=8,n=16,k=8,dtype=f32")


def test_the_self_check_of_bytes_saturates_few_results(host: Target) -> None:
    problem = parse_problem("matmul:m=8,n=16,k=96,dtype=i8,bias,out=i8,requant=tensor")
    text = export(problem, Schedule(nest_for(problem, host).steps), host)
    (bound,) = re.findall(r"rng\.integers\(-(\d+), \d+, BIAS_SHAPE", text)
    assert int(bound) < 96 * 128**2
    assert "out = matmul(a, b, bias=bias, scale_c=scale_c, zero_c=zero_c)" in text


@pytest.mark.full
@pytest.mark.parametrize("at", [1, 4])
def test_the_self_check_sees_a_wrong_transform(at: int, host: Target, tmp_path: Path) -> None:
    text, steps = OTHERS[at]
    source = export(parse_problem(text), Schedule(steps), host)
    wrong = source.replace("c_tile = a_panels", "c_tile = 64 + a_panels")
    assert wrong != source
    assert "WRONG" in run_alone(wrong, tmp_path).stderr


def test_a_processor_without_the_features_is_told_in_one_line(host: Target, tmp_path: Path) -> None:
    problem = parse_problem("matmul:m=8,n=16,k=8,dtype=f32")
    text = export(problem, Schedule((Register(2, host.lanes("f32")),)), host)
    start = text.index("NEEDS = (")
    wrong = text[:start] + text[start:].replace("NEEDS = (", "NEEDS = ('imaginary', ", 1)
    done = run_alone(wrong, tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"is for {host.canonical} and needs imaginary" in done.stderr
    with pytest.raises(ImportError, match="needs imaginary"):
        load(wrong, tmp_path)


def test_the_text_is_the_golden_one_apart_from_its_ir(golden: Callable[[str, str], None]) -> None:
    problem = parse_problem("matmul:m=10,n=24,k=6,dtype=f32,bias,epilogue=relu")
    schedule = Schedule((Stream("k", 4), Pack("B"), Tile("m", 4), Pack("A"), Register(2, 16)))
    tuned = Tuned(12.5, 0.25, "numba 1, llvmlite 2")
    text = export(problem, schedule, TINY, tuned, "numba 3, llvmlite 4")
    assert text == export(problem, schedule, TINY, tuned, "numba 3, llvmlite 4")
    ast.parse(text)
    start, end = text.index('KERNELS = """'), text.index('"""\nNAMES')
    digest = text[text.index("tilewise_kernel_full_") :][21:33]
    shown = (text[:start] + 'KERNELS = """' + text[end:]).replace(digest, "DIGEST")
    golden("kernel.py.txt", shown)


def test_operands_are_checked_before_any_address_is_used(host: Target, tmp_path: Path) -> None:
    problem = parse_problem("matmul:m=6,n=16,k=6,dtype=f32")
    module = load(export(problem, Schedule((Register(2, host.lanes("f32")),)), host), tmp_path)
    a, b = np.ones((6, 6), np.float32), np.ones((6, 16), np.float32)
    read_only = np.empty((6, 16), np.float32)
    read_only.flags.writeable = False
    for arguments, message in (
        ((a[:5], b), r"a is float32\[5, 6\], not float32\[6, 6\]"),
        ((a, b.astype(np.float64)), r"b is float64\[6, 16\]"),
        ((a.T, b), "a is not contiguous"),
        ((a.tolist(), b), "a is list"),
        ((a, b, read_only), "out is read-only"),
        ((a, b, b), "out overlaps"),
        ((a, b, None, np.ones(16, np.float32)), "adds no bias"),
    ):
        with pytest.raises(ValueError, match=message):
            module.matmul(*arguments)
    assert (module.matmul(a, b) == 6).all()


def test_threads_do_not_share_scratch(host: Target, tmp_path: Path) -> None:
    problem = parse_problem("matmul:m=96,n=96,k=96,dtype=i32")
    module = load(export(problem, goto(host, "i32"), host), tmp_path)
    rng = np.random.default_rng(0)
    wrong: list[int] = []
    module.matmul(*(np.zeros((96, 96), np.int32) for _ in range(2)))

    def work(a: np.ndarray, b: np.ndarray) -> None:
        expected = a @ b
        wrong.extend(int((module.matmul(a, b) != expected).sum()) for _ in range(200))

    pairs = [rng.integers(-9, 9, (2, 96, 96), dtype=np.int32) for _ in range(3)]
    threads = [threading.Thread(target=work, args=tuple(pair)) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 600
    assert not any(wrong)


def test_two_kernels_in_one_process_keep_their_code_apart(host: Target, tmp_path: Path) -> None:
    problems = [parse_problem(f"matmul:m=6,n=16,k={k},dtype=f32") for k in (6, 7)]
    schedules = [Schedule((Register(rows, host.lanes("f32")),)) for rows in (2, 3)]
    texts = [export(*each, host) for each in zip(problems, schedules, strict=True)]
    first, second = (load(text, tmp_path) for text in texts)
    for module, k in ((second, 7), (first, 6)):
        a, b = np.ones((6, k), np.float32), np.ones((k, 16), np.float32)
        assert (module.matmul(a, b) == k).all()
    assert not set(first.NAMES) & set(second.NAMES), "whoever links them may link both"


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "keys"), [
    ("f32", ",bias,epilogue=relu"), ("i8", ""), ("bf16,b=i4,group=16,scale=bf16,zero_b=u4", ""),
])  # fmt: skip
def test_constant_weights_are_packed_once(dtype, keys, host, tmp_path) -> None:
    problem = parse_problem(f"matmul:m=19,n=70,k=41,dtype={dtype},weights=constant{keys}")
    steps = (Tile("n", 32), Stream("k", 32), Pack("B"), Pack("A"), Register(4, 32), Unroll(2))
    module = load(export(problem, Schedule(steps), host), tmp_path)
    module.main()
    operands = make_operands(problem, 3)
    packed = module.pack(*(operands[name] for name in problem.constants))
    operands["B"][...] = 0  # packed once: the kernel does not look at it again
    bias = operands.get("bias")
    expected = reference(problem, make_operands(problem, 3))
    for _ in range(2):
        result = module.matmul(operands["A"], packed, bias=bias)
        assert np.less_equal(*compare(problem, result, expected))
    with pytest.raises(ValueError, match="packed is"):
        module.matmul(operands["A"], operands["B"], bias=bias)


def test_needs_follow_the_width_of_the_vectors() -> None:
    problem = parse_problem("matmul:m=6,n=16,k=6,dtype=f32")
    schedule = Schedule((Register(2, 16),))
    assert "NEEDS = ('avx2', 'fma')" in export(problem, schedule, TINY)
    integers = replace(problem, dtype="i32")
    assert "NEEDS = ('avx2',)" in export(integers, schedule, TINY)
    wide = replace(TINY, features=frozenset({"avx512f", "fma"}), vector_bytes=64)
    assert "NEEDS = ('avx512f', 'fma')" in export(problem, schedule, wide)
    assert "NEEDS = ()" in export(problem, schedule, Target("old"))
