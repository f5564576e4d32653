"""The barrier, in every order in which threads may take its steps, and as it is compiled."""

import ast
import ctypes
import threading
import time
from collections.abc import Callable, Generator, Iterator
from random import Random

import numpy as np
import pytest
from llvmlite import ir

from tilewise.kernels.native.jit.loading import Loaded, link
from tilewise.kernels.native.jit.object_code import compile_module
from tilewise.kernels.native.language.compiler import emit_driver, emit_function, language
from tilewise.kernels.native.language.primitives import CONSTANTS
from tilewise.kernels.native.language.shared_words import ARRIVED, BARRIER_WORDS, PHASE

Steps = Generator[tuple[str, list[int]], int, None]


class OfSteps(ast.NodeTransformer):
    """A call becomes a step: whoever runs the function does it, and sends what it gives."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        assert isinstance(node.func, ast.Name)
        arguments = ast.List([self.visit(argument) for argument in node.args], ast.Load())
        return ast.Yield(ast.Tuple([ast.Constant(node.func.id), arguments], ast.Load()))


def in_steps() -> Callable[[int, int], Steps]:
    """`wait_for_all`, from the source that drivers compile, step by step."""
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


MEETING = """
from numba import njit
from tilewise.kernels.native.language.functions import wait_for_all
from tilewise.kernels.native.language.intrinsics import read_shared, write_shared

@njit
def meet(barrier, parts, board, mine, turns):
    for turn in range(turns):
        now = read_shared(board, mine) + 1
        write_shared(board, mine, now)
        wait_for_all(barrier, parts)
        for other in range(parts):
            if read_shared(board, other * 8) < now:
                return turn + 1
    return 0
"""
AT_ONCE, MOST_TURNS, ENOUGH_S, LIMIT_S = 500, 20_000, 1.0, 60.0


def compiled() -> Loaded:
    """A function that meets its like on other threads, as drivers are compiled."""
    link("wait_for_all")
    module = ir.Module("meeting")
    return Loaded(compile_module(module, emit_driver(module, MEETING), "level 1 by function"))


@pytest.mark.full
@pytest.mark.parametrize("parts", [2, 3])
def test_threads_meet_thousands_of_times(parts: int) -> None:
    owner = compiled()
    meet = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)(owner.addresses[0])
    words, board = np.zeros(BARRIER_WORDS, np.int64), np.zeros(8 * parts, np.int64)
    early: list[int] = []

    def work(part: int) -> None:
        early.append(meet(words.ctypes.data, parts, board.ctypes.data, 8 * part, AT_ONCE))

    turns, begin = 0, time.monotonic()
    while turns < MOST_TURNS and time.monotonic() < begin + ENOUGH_S:
        threads = [threading.Thread(target=work, args=(p,), daemon=True) for p in range(parts)]
        for thread in threads:
            thread.start()
        end_all(threads, words)
        turns += AT_ONCE
        assert not any(early), "a thread left before all had come"
        assert board[::8].tolist() == [turns] * parts and words[ARRIVED] == 0


def end_all(threads: list[threading.Thread], words: np.ndarray) -> None:
    """Wait for all; where they wait for ever, let them go and say so."""
    until = time.monotonic() + LIMIT_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    are_stuck = any(thread.is_alive() for thread in threads)
    while any(thread.is_alive() for thread in threads):
        words[PHASE] += 1
    assert not are_stuck, f"{AT_ONCE} turns took longer than {LIMIT_S:.0f} s"
