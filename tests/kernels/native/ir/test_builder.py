"""What the writer of instructions writes, against llvmlite's builder and against Python."""

import ctypes
import random
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop, branch
from tilewise.kernels.native.ir.vectors import I1, I8, I32, I64, const
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import compile_module

WORD, DOUBLE = 2**64, ir.DoubleType()
FOUR = ir.VectorType(I32, 4)
Emit = Callable[[Any, Any, Any, Any], Any]


def compiled(builder: Any, emit: Emit) -> Callable[[int, int], int]:
    """What `emit` makes of a builder, an address of 64 bytes, and two integers."""
    module = ir.Module("object")
    function = ir.Function(module, ir.FunctionType(I64, [I64] * 3), "made")
    b = builder(function.append_basic_block("entry"))
    b.ret(emit(b, *function.args))
    llvm.parse_assembly(str(module)).verify()
    owner = Loaded(compile_module(module, [function], "none"))
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 3)
    memory = (ctypes.c_int64 * 8)()

    def run(x: int, y: int, _owner: Loaded = owner) -> int:
        memory[:] = range(3, 11)
        result: int = kind(owner.addresses[0])(ctypes.addressof(memory), x, y)
        return result

    return run


def vector(b: Any, x: Any) -> Any:
    whole = ir.Constant(FOUR, [5, -6, 7, -8])
    return b.insert_element(whole, b.trunc(x, I32), ir.Constant(I32, 2))


def total(b: Any, value: Any) -> Any:
    """The lanes of a vector of four, by halves."""
    none = ir.Constant(FOUR, ir.Undefined)
    for lanes in ([2, 3, 0, 1], [1, 0, 3, 2]):
        value = b.add(value, b.shuffle_vector(value, none, ir.Constant(FOUR, lanes)))
    at = b.alloca(FOUR)
    b.store(value, at, align=4)
    return b.sext(b.load(b.bitcast(at, I32.as_pointer()), align=4), I64)


def pointer(b: Any, address: Any, index: int) -> Any:
    return b.inttoptr(b.add(address, const(8 * index)), I64.as_pointer())


def floats(b: Any, memory: Any, x: Any) -> Any:
    at = b.inttoptr(memory, DOUBLE.as_pointer())
    b.store(ir.Constant(DOUBLE, 2.5), at, align=8)
    y = b.fadd(b.load(at, align=8), b.fmul(b.load(at), ir.Constant(DOUBLE, -3.0)))
    single = b.fpext(ir.Constant(ir.FloatType(), 0.5), DOUBLE)
    is_less = b.fcmp_ordered("<", y, single)
    return b.select(is_less, b.bitcast(y, I64), x)


def under_a_condition(b: Any, memory: Any, x: Any, y: Any) -> Any:
    with b.if_then(b.icmp_signed(">", x, y)):
        b.store(x, pointer(b, memory, 1))
    return b.load(pointer(b, memory, 1))


def atomics(b: Any, memory: Any, x: Any, y: Any) -> Any:
    at = pointer(b, memory, 2)
    before = b.atomic_rmw("add", at, x, "acq_rel")
    b.store_atomic(b.add(b.load_atomic(at, "acquire", 8), y), at, "release", 8)
    return b.xor(before, b.load(at))


def calls(b: Any, memory: Any, x: Any, y: Any) -> Any:
    kind = ir.FunctionType(I64, [I64, I64])
    inner = ir.Function(b.module, kind, "inner")
    ir.IRBuilder(inner.append_basic_block()).ret(inner.args[1])
    filled = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I8, I64, I1])
    fill = ir.Function(b.module, filled, "llvm.memset.p0.i64")
    bytes_at = b.inttoptr(memory, I8.as_pointer())
    b.call(fill, (bytes_at, b.trunc(x, I8), const(8), ir.Constant(I1, 0)))
    return b.add(b.call(inner, (x, y)), b.load(pointer(b, memory, 0)))


PROGRAMS: dict[str, Emit] = {
    "arithmetic": lambda b, m, x, y: b.sub(b.mul(b.add(x, y), x), b.or_(x, b.and_(y, const(255)))),
    "quotient": lambda b, m, x, y: b.add(b.sdiv(x, const(-7)), b.srem(y, const(13))),
    "bits": lambda b, m, x, y: b.ashr(b.shl(b.xor(x, y), const(3)), const(5)),
    "choice": lambda b, m, x, y: b.select(b.icmp_signed("<=", x, y), x, const(-1)),
    "equal": lambda b, m, x, y: b.zext(b.icmp_signed("!=", x, b.add(y, const(0))), I64),
    "narrow": lambda b, m, x, y: b.sext(b.trunc(x, I8), I64),
    "lanes": lambda b, m, x, y: total(b, b.add(vector(b, x), vector(b, y))),
    "floats": lambda b, m, x, y: floats(b, m, x),
    "memory": lambda b, m, x, y: b.add(b.load(pointer(b, m, 5)), x),
    "condition": under_a_condition,
    "atomics": atomics,
    "calls": calls,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_written_does_what_llvmlites_builder_does(name: str) -> None:
    written, built = (compiled(each, PROGRAMS[name]) for each in (Builder, ir.IRBuilder))
    draw = random.Random(name)
    for _ in range(50):
        x, y = (draw.randrange(-(2 ** draw.choice((4, 62))), 2**62) for _ in range(2))
        for other in (y, x, x + 1):
            assert written(x, other) == built(x, other)


def test_a_loop_carries_values_and_a_branch_merges_them() -> None:
    def emit(b: Builder, _memory: Any, x: Any, y: Any) -> Any:
        loop = CountedLoop(b, [const(0)], "turn")
        is_odd = b.icmp_signed("==", b.and_(loop.index, const(1)), const(1))
        (done,) = branch(b, is_odd, lambda s: [b.add(s[0], y)], loop.carried)
        return loop.close([done], x, 1)[0]

    run = compiled(Builder, emit)
    assert [run(count, 10) for count in (1, 2, 5, 8)] == [0, 10, 20, 40]


TERMS = st.recursive(
    st.integers(-(2**40), 2**40) | st.sampled_from("xy"),
    lambda inner: st.tuples(st.sampled_from(("add", "mul", "sub")), inner, inner),
    max_leaves=12,
)


def emitted(b: Builder, term: Any, known: dict[str, Any]) -> Any:
    if isinstance(term, tuple):
        name, left, right = term
        return getattr(b, name)(emitted(b, left, known), emitted(b, right, known))
    return known[term] if isinstance(term, str) else const(term)


def computed(term: Any, known: dict[str, int]) -> int:
    if isinstance(term, tuple):
        x, y = computed(term[1], known), computed(term[2], known)
        return {"add": x + y, "sub": x - y, "mul": x * y}[term[0]]
    return known[term] if isinstance(term, str) else term


@settings(max_examples=80, deadline=None, derandomize=True)
@given(TERMS, st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_sums_and_products_of_constants_are_worked_out_as_the_machine_would(
    term: Any, x: int, y: int
) -> None:
    run = compiled(Builder, lambda b, _memory, x, y: emitted(b, term, {"x": x, "y": y}))
    assert run(x, y) % WORD == computed(term, {"x": x, "y": y}) % WORD
