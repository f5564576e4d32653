"""Objects of any problem and schedule: right, within their memory, proven, and refusing."""

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.kernels.objects import compiled_again
from tests.cases import cases, some
from tests.kernels.emulated_tiles import ALDER_LAKE
from tests.kernels.native_case import TARGETS
from tests.kernels.strategies import of_fewer_products, problems, schedules
from tilewise.kernels.errors import LimitError, LoweringError, ProofError
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import ObjectCode
from tilewise.kernels.native.objects import features
from tilewise.kernels.native.objects.features import CHECKED, Bit, supported_text, used_features
from tilewise.kernels.native.objects.make import KernelObject, make_object
from tilewise.kernels.native.objects.module import machine
from tilewise.kernels.native.objects.object_files import Elf, archive
from tilewise.kernels.native.objects.proof.calls import LoadedObject
from tilewise.kernels.native.objects.proof.checks import ObjectTrial
from tilewise.kernels.native.objects.proof.prove import prove_object, require_proven
from tilewise.kernels.problem import Matmul, Problem, parse_problem
from tilewise.kernels.schedule import Pack, Parallel, Register, Schedule, Step, Tile, Unroll
from tilewise.kernels.target import Target


def check_object(problem: Problem, schedule: Schedule, target: Target, seed: int) -> KernelObject:
    """All that a proof checks, but for the speed; and that the file wants nothing of others."""
    made = make_object(problem, schedule, target)
    found = Elf.read(made.object)
    assert found.undefined == () and found.writable_bytes == 0
    assert found.defined == tuple(sorted(made.interface.functions))
    loaded = LoadedObject(made.interface, made.object)
    for check in ObjectTrial.of(problem, schedule, loaded, seed).checks():
        check()
    return made


def needs_a_library(problem: Problem, target: Target) -> bool:
    """Whether halves are converted, or scaled sums rounded, by functions that no object has."""
    has_halves = "f16" in (problem.dtype, problem.out)
    return (has_halves and "f16c" not in target.features) or (
        bool(problem.requant) and target.features.isdisjoint(("sse4.1", "avx2"))
    )


@pytest.mark.timeout(900)
@cases(24, short=8)
@given(st.data())
def test_any_problem_with_any_legal_schedule(data: st.DataObject) -> None:
    problem = data.draw(problems)
    target = data.draw(st.sampled_from(TARGETS))
    schedule = data.draw(schedules(problem, target))
    if needs_a_library(problem, target):
        with pytest.raises(LoweringError, match="more extensions"):
            make_object(problem, schedule, target)
        return
    check_object(problem, schedule, target, data.draw(st.integers(0, 1000)))


@pytest.mark.full
@pytest.mark.timeout(900)
@cases(16)
@given(st.data())
def test_any_problem_by_fewer_products(data: st.DataObject) -> None:
    target = data.draw(st.sampled_from(TARGETS))
    problem, schedule = data.draw(of_fewer_products(target))
    check_object(problem, schedule, target, 5)


def test_groups_wider_than_a_register_have_sums_of_integers() -> None:
    """Of 128-bit vectors: LLVM ended the process over an operand that no register holds."""
    problem = parse_problem("conv2d:n=1,h=4,w=5,ci=6,co=16,kh=2,kw=2,groups=2,dtype=i8")
    check_object(problem, Schedule((Register(2, 16),)), TARGETS[-1], 3)


def goto(target: Target, *before: Parallel) -> Schedule:
    steps = (Tile("n", 32), Pack("B"), Tile("m", 16), Pack("A"))
    return Schedule((*before, *steps, Register(4, target.lanes("f32")), Unroll(2)))


def test_the_same_schedule_makes_the_same_bytes(host: Target) -> None:
    problem = Matmul(m=33, n=65, k=47, dtype="f32", bias=True)
    made = [make_object(problem, goto(host), host) for _ in range(2)]
    assert made[0] == made[1]
    assert make_object(problem, Schedule((Register(4, 16),)), host).object != made[0].object


def test_bitcode_stays_right_when_a_compiler_works_on_it(host: Target) -> None:
    """And without that it is the object; functions for cut tiles are still their own."""
    problem = Matmul(m=33, n=65, k=47, dtype="f32", bias=True, epilogue="relu")
    schedule = goto(host, Parallel("m", 3))
    made = make_object(problem, schedule, host)
    again = machine(made.features).emit_object(llvm.parse_bitcode(made.bitcode))
    assert bytes(again) == made.object
    loaded = LoadedObject(made.interface, compiled_again(made.bitcode, made.features))
    for check in ObjectTrial.of(problem, schedule, loaded, 6).checks():
        check()


def test_no_text_of_this_machine_is_in_an_object(host: Target) -> None:
    """What is told of the processor is its extensions; no paths, no name but the symbols'."""
    made = make_object(Matmul(m=5, n=16, k=3, dtype="f32"), Schedule((Register(5, 16),)), host)
    bare = made.object.replace(made.interface.name.encode(), b"")
    for told in (host.cpu.encode(), b"/home", b"/tmp", b"LLVM"):
        assert told not in bare
    other = replace(host, features=host.features ^ {"avx512vl"})
    again = make_object(Matmul(m=5, n=16, k=3, dtype="f32"), Schedule((Register(5, 16),)), other)
    assert again.interface.name != made.interface.name, "features that differ have a digest"


def test_scratch_is_what_the_schedule_packs(host: Target) -> None:
    problem = Matmul(m=33, n=65, k=47, dtype="f32")
    assert make_object(problem, Schedule((Register(4, 16),)), host).interface.scratch_bytes == 0
    whole = make_object(problem, goto(host), host).interface
    parts = make_object(problem, goto(host, Parallel("m", 3)), host).interface
    assert 0 < whole.scratch_bytes < parts.scratch_bytes and parts.parts == 3


CONSTANT: dict[str, tuple[Step, ...]] = {
    "matmul:m=5,n=33,k=17,dtype=f32": (Pack("B"),),
    "matmul:m=5,n=33,k=17,dtype=f64": (),
    "conv2d:n=1,h=7,w=5,ci=3,co=5,kh=3,kw=3,layout=nchw_fchw,dtype=i8": (Pack("B"), Pack("A")),
    "conv2d:n=1,h=7,w=5,ci=9,co=9,kh=3,kw=3,groups=9,dtype=f32": (),
    "conv3d:n=1,d=3,h=7,w=5,ci=9,co=9,kd=2,kh=3,kw=3,dtype=f32": (Pack("B"),),
    "matmul:m=5,n=33,k=81,dtype=f32,b=i4,group=32,scale=f16,zero_b=u4": (Pack("B"), Pack("A")),
    "matmul:m=5,n=33,k=17,dtype=bf16,b=i8,group=k,transpose_b": (Pack("B"), Pack("A")),
    "matmul:m=9,n=40,k=33,dtype=u8,b=i8,zero=ab": (Pack("B"), Pack("A")),
    "matmul:m=9,n=40,k=33,dtype=i8,zero=b": (Pack("B"), Pack("A")),
}


@pytest.mark.parametrize("text", CONSTANT)
def test_constant_weights_are_always_prepared(text: str, host: Target) -> None:
    """A program calls the same functions, whatever the next search finds."""
    problem = parse_problem(f"{text},weights=constant")
    tile = Register(1, host.lanes(problem.element.name))
    made = check_object(problem, Schedule((*CONSTANT[text], tile)), host, 2)
    assert made.interface.packed_bytes % 64 == 0 and "_prepare" in made.header


AR, NM = shutil.which("ar"), shutil.which("nm")


def members(host: Target) -> dict[str, bytes]:
    """Two objects, of which one has a name too long for a header."""
    names, schedule = ("short.o", f"{'long' * 9}.o"), Schedule((Register(2, 16),))
    problems = (Matmul(m=m, n=16, k=5, dtype="f32") for m in (2, 3))
    return {n: make_object(p, schedule, host).object for n, p in zip(names, problems, strict=True)}


@pytest.mark.skipif(
    AR is None or NM is None,
    reason="the archive is read back with ar and nm, and this machine lacks one of them",
)
def test_binutils_reads_members_and_symbols(host: Target, tmp_path: Path) -> None:
    assert AR is not None and NM is not None
    made = members(host)
    path = tmp_path / "lib.a"
    path.write_bytes(archive(made))
    listed = subprocess.run([AR, "t", path], capture_output=True, text=True, check=True).stdout
    assert listed.split() == list(made)
    for name, data in made.items():
        assert subprocess.run([AR, "p", path, name], capture_output=True, check=True).stdout == data
    index = subprocess.run([NM, "-s", path], capture_output=True, text=True, check=True).stdout
    for name, data in made.items():
        for symbol in Elf.read(data).defined:
            assert f"{symbol} in {name}" in index


def test_what_cannot_be_an_archive(host: Target) -> None:
    made = members(host)
    (name, data), *_ = made.items()
    with pytest.raises(ValueError, match="defined by two members"):
        archive({name: data, "other.o": data})
    with pytest.raises(ValueError, match="cannot be the name"):
        archive({"a/b.o": data})
    with pytest.raises(ValueError, match="no 64-bit"):
        archive({"text.o": b"text"})


def answer(*wanted: str) -> int:
    """What the function says here that looks for extensions."""
    module = llvm.parse_assembly(supported_text("asked", wanted))
    module.triple = llvm.get_process_triple()
    owner = Loaded(ObjectCode(("asked_supported",), machine(()).emit_object(module)))
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(owner.addresses[0])())


@pytest.mark.parametrize("name", CHECKED)
def test_each_extension_is_found_where_it_is(name: str, host: Target) -> None:
    here = [one for one in CHECKED if one in host.features]
    assert answer(name) == (name in host.features) and answer() == answer(*here) == 1


@pytest.mark.parametrize("bit", [
    Bit(features.BASIC, 0, "ecx", 16),  # reserved in every processor
    Bit(0x40FFFFFF, 0, "eax", 0),  # beyond the last leaf
    Bit(0x8FFFFFFF, 0, "eax", 0),
])  # fmt: skip
def test_an_absent_bit_is_missed(bit: Bit, host: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(features.CHECKED, "absent", bit)
    here = [name for name in CHECKED if name in host.features]
    assert answer("absent") == 0 and answer(*here, "absent") == 0


def test_what_llvm_takes_for_granted_is_looked_for() -> None:
    assert "avx" in used_features({"avx2"}, "") and "sse3" in used_features({"fma"}, "")
    wide = used_features({"avx512f", "avx512bf16", "avx512vnni"}, "")
    assert "fma" in wide and "avx512vnni" not in wide
    assert "avx512vnni" in used_features({"avx512vnni"}, "call @llvm.x86.avx512.vpdpbusd.512")
    for product in ("tdpbssd", "tdpbsud", "tdpbusd", "tdpbuud", "tdpfp16ps"):
        needed = "amx-fp16" if "fp16" in product else "amx-int8"
        has = {"amx-int8", "amx-bf16", "amx-fp16", "amx-tile"}
        assert set(used_features(has, f"call void @llvm.x86.{product}(")) == {"amx-tile", needed}


@pytest.mark.parametrize("keys", ["i8", "bf16,b=i4,group=32,scale=f16,weights=constant"])
def test_bytes_are_multiplied_by_avx_vnni(keys: str) -> None:
    problem = parse_problem(f"matmul:m=9,n=64,k=66,dtype={keys}")
    made = make_object(problem, Schedule((Pack("B"), Pack("A"), Register(3, 16))), ALDER_LAKE)
    assert "avxvnni" in made.features and "avx512f" not in made.features
    listed = machine(made.features).emit_assembly(llvm.parse_bitcode(made.bitcode))
    assert "{vex}\tvpdpbusd" in listed and "zmm" not in listed


PROBLEM = Matmul(m=33, n=65, k=47, dtype="f32")
PLAIN = Schedule((Pack("B"), Register(3, 16)))


@pytest.fixture(scope="module")
def made(host: Target) -> KernelObject:
    return make_object(PROBLEM, PLAIN, host)


def test_a_right_one_is_proven_and_timed(made: KernelObject, host: Target) -> None:
    proof = require_proven(PROBLEM, PLAIN, host, made)
    assert proof.ok and proof.max_error is not None and proof.tolerance is not None
    assert proof.max_error <= proof.tolerance
    assert proof.gflops and proof.ratio and proof.ratio > 0.5


def test_parts_are_proven_by_one_thread(host: Target) -> None:
    schedule = Schedule((Parallel("m", 2), *PLAIN.steps))
    proof = prove_object(PROBLEM, schedule, host, make_object(PROBLEM, schedule, host))
    assert proof.ok and proof.ratio is None and proof.gflops


def of_another(problem: Problem, host: Target, made: KernelObject) -> KernelObject:
    """The object of another problem, under the names of the first."""
    other = make_object(problem, PLAIN, host)
    mine, theirs = made.interface, other.interface
    named = {"name": theirs.name, "alias": theirs.alias}
    return replace(other, interface=replace(mine, **named))


def test_one_of_another_problem_is_wrong(made: KernelObject, host: Target) -> None:
    relu = Matmul(m=33, n=65, k=47, dtype="f32", epilogue="relu")
    proof = prove_object(PROBLEM, PLAIN, host, of_another(relu, host, made))
    assert proof.failure == "wrong" and "off by" in proof.message and not proof.ok
    with pytest.raises(ProofError, match="wrong"):
        require_proven(PROBLEM, PLAIN, host, of_another(relu, host, made))


@pytest.mark.parametrize("larger", some([{"k": 48}, {"m": 34}, {"n": 66}], of=3))
def test_access_beyond_operands_crashes_in_a_child(larger, made, host) -> None:
    problem = replace(PROBLEM, **larger)
    proof = prove_object(PROBLEM, PLAIN, host, of_another(problem, host, made))
    assert proof.failure == "crash" and "SIGSEGV" in proof.message


def test_less_scratch_than_is_needed_shows(made: KernelObject, host: Target) -> None:
    less = replace(made.interface, scratch_bytes=made.interface.scratch_bytes - 64)
    proof = prove_object(PROBLEM, PLAIN, host, replace(made, interface=less))
    assert proof.failure == "crash" and "SIGSEGV" in proof.message


def test_limits_hold(made: KernelObject, host: Target) -> None:
    proof = prove_object(PROBLEM, PLAIN, host, made, seconds=0.05)
    assert proof.failure == "timeout"
    with pytest.raises(LimitError):
        prove_object(PROBLEM, PLAIN, host, made, memory_bytes=0)
