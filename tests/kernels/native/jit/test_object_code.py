"""Object code is made once, kept for other processes, and made again where it is damaged."""

import ctypes
import gc
import os
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from tilewise.kernels.native.ir.vectors import I64
from tilewise.kernels.native.jit import object_code
from tilewise.kernels.native.jit.loading import Loaded, compile_kernels, load
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.system import files
from tilewise.kernels.target import detect

PROBLEM = Matmul(m=9, n=40, k=7, dtype="f32")
OF_A_TILE = ("full", "edge", "filling")


def schedule(rows: int) -> Schedule:
    return Schedule((Pack("B"), Register(rows, detect().lanes("f32"))))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    load.cache_clear()
    yield tmp_path / "objects"
    load.cache_clear()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was compiled, a function's module at a time."""
    seen: list[object] = []
    compile_module = object_code.compile_module

    def noted(module, functions, passes):
        seen.append(module)
        return compile_module(module, functions, passes)

    monkeypatch.setattr(object_code, "compile_module", noted)
    return seen


def compiled(rows: int) -> None:
    """As a new process compiles it: with the cache folder alone."""
    load.cache_clear()
    planned = plan(PROBLEM, schedule(rows), detect())
    compile_kernels(planned.kernel, planned.functions, planned.use)


def forget_the_machine() -> None:
    """As in a new process, which asks once what machine it is on."""
    object_code._maker.cache_clear()
    object_code.features.cache_clear()


def test_a_function_is_compiled_once_for_all_processes_and_schedules(
    kept: Path, made: list[object]
) -> None:
    for _ in range(3):
        compiled(4)
    assert len(made) == len(list(kept.iterdir())) == len(OF_A_TILE) + 1, "and B's pack"
    compiled(5)
    assert len(made) == 2 * len(OF_A_TILE) + 1, "the pack serves tiles of any rows"


@pytest.mark.parametrize("damage", [b"", b"x" * 40])
def test_a_damaged_object_is_compiled_again(kept: Path, made: list[object], damage: bytes) -> None:
    compiled(4)
    before, path = len(made), next(kept.iterdir())
    whole = path.read_bytes()
    path.write_bytes(damage or whole[:-1])
    compiled(4)
    assert len(made) == before + 1 and path.read_bytes() == whole


@pytest.mark.parametrize(
    ("asked", "name", "answer"),
    [
        (object_code, "identity", "another toolchain"),
        (llvm, "get_host_cpu_name", "another processor"),
        (llvm, "get_host_cpu_features", llvm.FeatureMap({"one-feature-less": True})),
    ],
    ids=["toolchain", "processor", "features"],
)
def test_another_processor_or_toolchain_has_objects_of_its_own(
    kept: Path, made: list[object], asked: object, name: str, answer: object
) -> None:
    compiled(4)
    before = len(made)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asked, name, lambda: answer)
        forget_the_machine()
        compiled(4)
    forget_the_machine()
    assert len(made) == len(list(kept.iterdir())) == 2 * before
    compiled(4)
    assert len(made) == 2 * before, "the first ones serve the first machine"


def test_what_was_used_of_late_is_not_the_first_to_go(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = object_code.ObjectCode(("f",), b"x" * 1000)
    names = ("used", "unused", "another")
    for name in names:
        object_code.keep_object(name, code)
    for path in kept.iterdir():
        os.utime(path, (1e8, 1e8))
    assert object_code.kept_object("used") == code
    monkeypatch.setattr(object_code, "MOST_BYTES", 2500)
    monkeypatch.setattr(files, "_COUNT_EVERY", 1)
    object_code.keep_object("new", code)
    left = {name for name in (*names, "new") if object_code.kept_object(name) is not None}
    assert left == {"used", "new"}


def test_a_folder_that_cannot_be_written_costs_only_time(
    kept: Path, made: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("a file where the folder would be")
    compiled(4)
    before = len(made)
    compiled(4)
    assert len(made) == 2 * before


def constant(value: int) -> object_code.ObjectCode:
    """A function that gives a value; each has the name of all others."""
    module = ir.Module("object")
    function = ir.Function(module, ir.FunctionType(I64, []), "value")
    ir.IRBuilder(function.append_basic_block()).ret(ir.Constant(I64, value))
    return object_code.compile_module(module, [function])


def called(loaded: Loaded) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.addresses[0])()


def test_many_objects_share_engines_and_outlive_each_other() -> None:
    made = [constant(value) for value in range(12)]
    assert len({code.functions for code in made}) == len(made), "names of their own"
    loaded = [Loaded(code) for code in [*made, *made] * 2]
    assert [called(each) for each in loaded] == list(range(12)) * 4
    del loaded[1::2]
    gc.collect()
    more = [Loaded(code) for code in made]
    assert [called(each) for each in [*loaded, *more]] == [*range(0, 12, 2)] * 4 + [*range(12)]
    engines = {id(each._engine) for each in more}
    assert len(engines) <= 2, "of sixteen objects each"


def calling(name: str, value: int | None = None) -> object_code.ObjectCode:
    """A function that gives what another gives: one of the same module, or a declared one."""
    module = ir.Module("object")
    inner, outer = (ir.Function(module, ir.FunctionType(I64, []), n) for n in (name, "outer"))
    if value is not None:
        ir.IRBuilder(inner.append_basic_block()).ret(ir.Constant(I64, value))
    builder = ir.IRBuilder(outer.append_basic_block())
    builder.ret(builder.call(inner, ()))
    return object_code.compile_module(module, [outer], "none")


def test_what_a_module_does_not_hand_out_is_nobody_elses() -> None:
    name = "tilewise_test_inner"
    own = Loaded(calling(name, 2))
    shared = Loaded(constant(77))
    llvm.add_symbol(name, shared.addresses[0])
    assert [called(own), called(Loaded(calling(name)))] == [2, 77]
