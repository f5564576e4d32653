"""The barrier, in every order in which threads may take its steps, and as it is compiled."""

import ast
from collections.abc import Callable, Generator, Iterator
from random import Random

import pytest
from llvmlite import ir

from tilewise.kernels.native.language.compiler import emit_function, language
from tilewise.kernels.native.language.primitives import CONSTANTS
from tilewise.kernels.native.language.shared_words import ARRIVED, BARRIER_WORDS

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
