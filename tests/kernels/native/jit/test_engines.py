"""Object code in a process: engines are shared, and what a module keeps to itself stays its own."""

import ctypes
import gc

import llvmlite.binding as llvm
from llvmlite import ir

from tilewise.kernels.native.ir.vectors import I64
from tilewise.kernels.native.jit import object_code
from tilewise.kernels.native.jit.loading import Loaded


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
