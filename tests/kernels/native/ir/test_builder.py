"""What the writer of instructions writes, against llvmlite's builder and against Python."""

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import ir

from tilewise.kernels.native.ir.builder import Builder
from tilewise.kernels.native.ir.control import CountedLoop, branch
from tilewise.kernels.native.ir.vectors import I64, const
from tilewise.kernels.native.jit.loading import Loaded
from tilewise.kernels.native.jit.object_code import compile_module

WORD, DOUBLE = 2**64, ir.DoubleType()
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
