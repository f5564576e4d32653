"""The loop nest of transformed IR, read from its text."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

from iree.compiler import ir

from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.lowering.apply import Diagnostics, apply_script
from tilewise.kernels.mlir.transform.module import with_payload
from tilewise.kernels.nest import Here, Nest, Stage
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule

_CONSTANT = re.compile(r"(%c\d\w*) = arith\.constant (-?\d+) : index")
_FOR = re.compile(r"scf\.for %\w+ = (%\w+) to (%\w+) step (%\w+)")
_FORALL = re.compile(r"scf\.forall \(%\w+\) in \((\d+)\)")
_ALLOC = re.compile(r"(%alloc\w*) = memref\.alloc\(\).*memref<([\dx]+)x[fi]\d+>")
_PRODUCT = re.compile(r"(vector\.fma|arith\.mul[fi]) .*vector<")
_SCALAR_PRODUCT = re.compile(r"arith\.mul[fi] .* : [fi]\d+$")
_VECTOR = re.compile(r"vector<([\dx]+)x[fi]\d+>$")
_STORE = re.compile(r"vector\.(?:transfer_write|store) %\w+, (%alloc\w*)\[")


@dataclass(frozen=True)
class Place:
    """An operation: its line, and the loops around it as (line, trips), outermost first."""

    line: int
    loops: tuple[tuple[int, int], ...]

    @property
    def trips(self) -> list[int]:
        return [trips for _, trips in self.loops]


@dataclass(frozen=True)
class Transformed:
    """Where the multiplications are, and where each scratch buffer is filled."""

    kernels: tuple[Place, ...]
    fills: dict[tuple[int, ...], Place]


def lines_in_loops(text: str) -> Iterator[tuple[str, Place]]:
    """Each line of a module with its place, but those that open a loop."""
    constants: dict[str, int] = {}
    stack: list[tuple[int, int, int]] = []
    for number, line in enumerate(text.splitlines()):
        indent = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        while stack and indent <= stack[-1][0]:
            stack.pop()
        if found := _CONSTANT.search(line):
            constants[found[1]] = int(found[2])
        elif found := _FOR.search(line):
            low, high, step = (constants[found[i]] for i in (1, 2, 3))
            stack.append((indent, number, -(-(high - low) // step)))
        elif found := _FORALL.search(line):
            stack.append((indent, number, int(found[1])))
        else:
            yield line, Place(number, tuple((at, trips) for _, at, trips in stack))


def read(text: str) -> Transformed:
    shapes: dict[str, tuple[int, ...]] = {}
    kernels: dict[tuple[tuple[int, int], ...], Place] = {}
    fills: dict[tuple[int, ...], Place] = {}
    for line, place in lines_in_loops(text):
        if found := _ALLOC.search(line):
            shapes[found[1]] = tuple(map(int, found[2].split("x")))
        elif found := _STORE.search(line):
            fills.setdefault(shapes[found[1]], place)
        elif _PRODUCT.search(line):
            kernels.setdefault(place.loops, place)
    return Transformed(tuple(kernels.values()), fills)


@contextmanager
def transformed(problem: Problem | str, schedule: Schedule) -> Iterator[Any]:
    """Yield the module that a script makes of its payload, in its context."""
    parsed = parse_problem(problem) if isinstance(problem, str) else problem
    with ir.Context() as context, ir.Location.unknown():
        text = with_payload(parsed, emit_script(parsed, schedule))
        yield apply_script(text, Diagnostics(context))


def applied(problem: Problem | str, schedule: Schedule) -> str:
    """The module that a script makes of its payload, as text."""
    with transformed(problem, schedule) as module:
        return str(module)


def products(text: str) -> int:
    """How often the code multiplies and adds: lanes of each product, times the trips around it."""
    total = 0
    for line, place in lines_in_loops(text):
        if _PRODUCT.search(line):
            lanes = _VECTOR.search(line)
            assert lanes, line
            total += prod(map(int, lanes[1].split("x"))) * prod(place.trips)
        elif _SCALAR_PRODUCT.search(line):
            total += prod(place.trips)
    return total


def trips_around(nest: Nest, here: Here) -> list[int]:
    """Trips of the loops around a node of a nest; a loop of one trip leaves no loop behind."""
    around = (one for one in nest.visit() if one.node in here.loops)
    return [one.trips for one in around if one.trips > 1]


def stages(nest: Nest) -> list[Here]:
    """The stages of a nest, in order."""
    return [here for here in nest.visit() if isinstance(here.node, Stage)]
