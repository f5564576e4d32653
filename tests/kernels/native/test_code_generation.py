"""Macro-kernels in their language and instructions in a builder, compiled to cached object code."""

import ast
import ctypes
import functools
import gc
import os
import random
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from random import Random

import llvmlite.binding as llvm
import pytest
from llvmlite import ir

from tilewise.kernels.errors import LoweringError
from tilewise.kernels.native.ir.vectors import I64
from tilewise.kernels.native.jit import object_code
from tilewise.kernels.native.jit.loading import Loaded, compile_kernels, load
from tilewise.kernels.native.jit.object_code import compile_module
from tilewise.kernels.native.language.compiler import emit_function, emit_macro_kernel, language
from tilewise.kernels.native.language.primitives import CONSTANTS
from tilewise.kernels.native.language.shared_words import ARRIVED, BARRIER_WORDS
from tilewise.kernels.native.plan import plan
from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Pack, Register, Schedule
from tilewise.kernels.system import files
from tilewise.kernels.target import detect

HEADER = "from numba import njit\n\n@njit\n"


def without(text: str, arguments: int) -> Callable[..., int]:
    """The last function of `text`, compiled here; it lives as long as what is given."""
    module = ir.Module("macro_kernel")
    function = emit_macro_kernel(module, text)[-1]
    made = compile_module(module, [function], "level 1 by function")
    owner = Loaded(made)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arguments)
    return functools.partial(called_with, kind(owner.addresses[0]), owner)


def called_with(function: Callable[..., int], _owner: Loaded, *given: int) -> int:
    return function(*given)


EXPRESSIONS = (
    "x // y", "x % y", "-x + y * 3 - z", "min(x, y, z)", "max(x, y)", "x | 7",
    "x if y < z else z", "(x < y) + (y <= z) * 2 + (x == z) * 4 + (x != y) * 8",
    "x > y or y >= z", "x < y and y < z", "not x", "not (x < y or z)",
    "1 if x and y or not z else 2",
)  # fmt: skip


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_is_what_python_makes_of_it(expression: str) -> None:
    text = f"def f(x, y, z):\n    return {expression}\n"
    meant: dict[str, Callable[..., int]] = {}
    exec(text, meant)
    # `and` and `or` give a truth value here, as they do in a condition.
    truth = any(word in expression for word in ("or", "and", "not")) and " if " not in expression
    found = without(HEADER + text, 3)
    rng = random.Random(1)
    for _ in range(200):
        x, z = rng.randint(-9, 9), rng.randint(-9, 9)
        y = rng.choice([-7, -3, -1, 1, 2, 5, 8])
        wanted = meant["f"](x, y, z)
        assert found(x, y, z) == (int(bool(wanted)) if truth else wanted), (x, y, z)


STATEMENTS = (
    "for i in range(x):\n    total += i * y",
    "for i in range(y, x):\n    if i % 3 == 0:\n        continue\n    total += i",
    "for i in range(y, x, 4):\n    i = i + 100\n    total += i",
    "while x > y:\n    x -= 3\n    if x % 2:\n        continue\n    total += x",
    "for i in range(x):\n    for j in range(i):\n        total += j\n        if j == y:\n"
    "            return total",
    "if x < y:\n    total = 1\nelif x == y:\n    total = 2\n"
    "else:\n    total, x = x, y\n    total -= x",
)


@pytest.mark.parametrize("body", STATEMENTS)
def test_statements_do_what_they_do_in_python(body: str) -> None:
    lines = ["total = 0", *body.splitlines(), "return total * 1000 + x"]
    text = "def f(x, y):\n" + "".join(f"    {line}\n" for line in lines)
    meant: dict[str, Callable[..., int]] = {}
    exec(text, meant)
    found = without(HEADER + text, 2)
    for x in range(-2, 30, 3):
        for y in range(-1, 9):
            assert found(x, y) == meant["f"](x, y), (x, y)


NOT_OF_IT = ["return [x]", "return x / 2", "for i in (1, 2): pass", "return abs(x)", "del x"]


@pytest.mark.parametrize("body", [*NOT_OF_IT, "for i in range(x): y = i\n    return y"])
def test_what_is_not_of_the_language_is_named(body: str) -> None:
    with pytest.raises(LoweringError, match=" of the language" if "y = i" in body else "language"):
        emit_macro_kernel(ir.Module("macro_kernel"), f"{HEADER}def f(x):\n    {body}\n")


Steps = Generator[tuple[str, list[int]], int, None]


class OfSteps(ast.NodeTransformer):
    """A call becomes a step: whoever runs the function does it, and sends what it gives."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        assert isinstance(node.func, ast.Name)
        arguments = ast.List([self.visit(argument) for argument in node.args], ast.Load())
        return ast.Yield(ast.Tuple([ast.Constant(node.func.id), arguments], ast.Load()))


def in_steps() -> Callable[[int, int], Steps]:
    """`wait_for_all`, from the source that macro-kernels compile, step by step."""
    function = OfSteps().visit(ast.parse(ast.unparse(language()["wait_for_all"])).body[0])
    function.decorator_list = []
    module: dict[str, object] = dict(CONSTANTS)
    exec(compile(ast.fix_missing_locations(ast.Module([function], [])), "barrier", "exec"), module)
    return module["wait_for_all"]


def do(memory: list[int], what: str, arguments: list[int]) -> int:
    """One step, whole before anybody takes another."""
    if what not in ("read_shared", "write_shared", "add_shared"):
        return 0
    base, index, *value = arguments
    before = memory[base + index]
    if what == "write_shared":
        memory[base + index] = value[0]
    elif what == "add_shared":
        memory[base + index] += value[0]
    return before


def member(memory: list[int], arrived: list[int], parts: int) -> Iterator[None]:
    """A thread that meets the others again and again; it stops after each of its steps."""
    wait = in_steps()
    for turn in range(len(arrived)):
        arrived[turn] += 1
        steps, given = wait(0, parts), None
        while True:
            try:
                given = do(memory, *steps.send(given))
            except StopIteration:
                break
            yield
        assert arrived[turn] == parts, "it left before all had come"


@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("burst", [1, 6])
def test_in_any_order_of_steps_all_meet_and_nobody_waits_for_ever(parts: int, burst: int) -> None:
    for seed in range(60):
        rng, memory, turns = Random(seed), [0] * BARRIER_WORDS, 6
        arrived = [0] * turns
        running = [member(memory, arrived, parts) for _ in range(parts)]
        steps = 0
        while running:
            one = rng.choice(running)
            for _ in range(rng.randint(1, burst)):
                steps += 1
                if next(one, running) is running:
                    running.remove(one)
                    break
            assert steps < 5000, "somebody waits for who has come already"
        assert arrived == [parts] * turns
        assert memory[ARRIVED] == 0


def test_what_was_written_before_the_barrier_is_seen_after_it() -> None:
    """On processors of any memory model, of which this machine has one alone."""
    module = ir.Module("barrier")
    shared = [line for line in str(emit_function(module, "wait_for_all")).splitlines()
              if "atomic" in line]  # fmt: skip
    loads = [line for line in shared if "load atomic" in line]
    stores = [line for line in shared if "store atomic" in line]
    adds = [line for line in shared if "atomicrmw add" in line]
    assert len(shared) == len(loads) + len(stores) + len(adds)
    assert loads and all(" acquire, align 8" in line for line in loads)
    assert stores and all(" release, align 8" in line for line in stores)
    assert adds and all(line.endswith(" acq_rel") for line in adds)


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


def test_a_function_is_compiled_once_for_all_processes(kept: Path, made: list[object]) -> None:
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


@pytest.mark.parametrize(("asked", "name", "answer"), [
    (object_code, "identity", "another toolchain"),
    (llvm, "get_host_cpu_name", "another processor"),
    (llvm, "get_host_cpu_features", llvm.FeatureMap({"one-feature-less": True})),
], ids=["toolchain", "processor", "features"])  # fmt: skip
def test_another_processor_or_toolchain_has_own_objects(kept, made, asked, name, answer) -> None:
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


def test_the_least_recently_used_objects_are_removed(kept, monkeypatch) -> None:
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


def test_a_read_only_cache_costs_only_time(kept, made, monkeypatch) -> None:
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
