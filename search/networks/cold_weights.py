"""Time layers with cold weights, as a network runs them.

A hot run finds its weights in the caches, but in a network the weights of all other layers have
passed since. So a layer is timed in turn over copies of its weights, as many as fill the network's
bytes, at most `MOST_COPIES`. Activations stay warm, as in a network.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from math import prod
from statistics import median

import numpy as np

from tilewise.kernels.errors import KernelsError
from tilewise.kernels.mlir.frontend.graph import Graph
from tilewise.kernels.native import Executable, lower
from tilewise.kernels.native.executable import KernelCall
from tilewise.kernels.native.passes.passes import Chain, chain
from tilewise.kernels.native.threads.thread_pool import thread_pool
from tilewise.kernels.oracle.operands import (
    NUMPY_TYPES,
    Operands,
    empty_aligned,
    make_operands,
    operand_type,
    poison,
)
from tilewise.kernels.problem import Problem, parse_problem
from tilewise.kernels.schedule import Schedule, with_panels_fetched
from tilewise.kernels.target.model import Target
from tilewise.search.networks.costs import LayerTimes, Timed, fastest_of_each
from tilewise.search.networks.lowering.memory import Arena, arena_bytes
from tilewise.search.timing.measure import interleave
from tilewise.search.timing.samples import Run

ROUNDS = 9
MOST_COPIES = 64
MOST_BYTES = 1536 << 20  # of all copies of all schedules of one layer


def timed_cold(costs: LayerTimes, target: Target, weights_bytes: int) -> LayerTimes:
    """Return times of layers with cold weights, each measured on first use.

    Problems with variable weights, or that cannot be compiled, keep their times. `weights_bytes` is
    that of the whole network.
    """

    def schedules(problem: str) -> tuple[Timed, ...]:
        offered, parsed = costs.schedules(problem), parse_problem(problem)
        if offered and parsed.has_constant_weights:
            offered = _timed(offered, parsed, target, weights_bytes) or offered
        return fastest_of_each(_by_time(offered))

    return replace(costs, schedules=cache(schedules))


def _timed(
    offered: Sequence[Timed], problem: Problem, target: Target, weights_bytes: int
) -> tuple[Timed, ...]:
    """Return the schedules that give right results here, with their new times."""
    operands = make_operands(problem)
    results: dict[str, bytes] = {}
    right: list[tuple[Timed, Executable]] = []
    for one, twin in with_prefetch(offered):
        schedule = Schedule.from_json(list(one.steps))
        with suppress(KernelsError):  # a prefetch of what is not packed ahead, for one
            executable = lower(problem, schedule, target)
            result = _result(executable, operands)
            if results.setdefault(twin, result) == result:
                right.append((one, executable))
    if not right:
        return ()
    count, room_of_one = -(-weights_bytes // _bytes_of_weights(problem)), MOST_BYTES // len(right)
    runs = [in_turns(executable, operands, count, room_of_one) for _, executable in right]
    samples = interleave(runs, ROUNDS, target.threads)
    return tuple(
        replace(one, time_us=1e6 * median(taken.times))
        for (one, _), taken in zip(right, samples, strict=True)
    )


def with_prefetch(offered: Sequence[Timed]) -> tuple[tuple[Timed, str], ...]:
    """Return schedules, and the fastest of each algorithm also with prefetched panels.

    Searches offer that for large weights alone, since others stay cached between runs. Each comes
    with the hash of the schedule whose result it has to reproduce exactly.
    """
    found = {one.hash: (one, one.hash) for one in offered}
    for one in fastest_of_each(_by_time(offered)):
        schedule = Schedule.from_json(list(one.steps))
        fetched = with_panels_fetched(schedule)
        if fetched != schedule:
            more = replace(one, hash=fetched.hash, steps=tuple(fetched.to_json()))
            found.setdefault(more.hash, (more, one.hash))
    return tuple(found.values())


def _by_time(some: Iterable[Timed]) -> list[Timed]:
    return sorted(some, key=lambda timed: timed.time_us)


def _result(executable: Executable, operands: Operands) -> bytes:
    """Return the bits that a kernel computes in poisoned memory."""
    poison(operands["C"])
    executable.bind(operands)(1)
    return operands["C"].tobytes()


def weights_bytes(graph: Graph) -> int:
    """Return the bytes of all constant weights of a model."""
    found = (node.found.problem for node in graph.nodes if node.found is not None)
    return bytes_of_weights(map(parse_problem, found))


def bytes_of_weights(problems: Iterable[Problem]) -> int:
    """Return the bytes of constant weights of problems, each counted as often as it occurs."""
    return sum(_bytes_of_weights(one) for one in problems if one.has_constant_weights)


def _bytes_of_weights(problem: Problem) -> int:
    size = np.dtype(NUMPY_TYPES[operand_type(problem, "B")]).itemsize
    return size * prod(problem.operand_shapes["B"])


def in_turns(
    executable: Executable, operands: Operands, count: int, most_bytes: int = MOST_BYTES
) -> Run:
    """Return runs of a kernel that cycle through copies of its weights.

    There are at most `count` and `MOST_COPIES` copies, and one or as many as fit `most_bytes`.
    """
    panels = executable.scratch_bytes
    packs_ahead = executable.macro_kernel.prepare is not None
    size = panels["B"] if packs_ahead else operands["B"].nbytes
    weights = Arena(arena_bytes(*[size] * max(1, min(count, MOST_COPIES, most_bytes // size))))
    scratch = {name: empty_aligned((size,), np.uint8) for name, size in panels.items()}
    calls = []
    while weights.left >= size:
        if packs_ahead:
            bound = executable.bind(operands, {**scratch, "B": weights.take(size)})
        else:
            bound = executable.bind({**operands, "B": weights.keep(operands["B"])}, scratch)
        bound.parameters[:, bound.repeat_at] = 1
        calls.append(bound)
    return _circle(calls)


def _circle(calls: Sequence[KernelCall]) -> Run:
    """Return runs that cycle through calls, continuing where the last run stopped."""
    tables = [
        np.array([(one.macro_kernel.entry, one.addresses[part]) for one in calls], np.int64)
        for part in range(len(calls[0].addresses))
    ]
    rows = np.array([[table.ctypes.data, 0, 0] for table in tables], np.int64)
    addresses, entry = [row.ctypes.data for row in rows], chain().address
    at, function = 0, Chain(entry)

    def run(repeat: int) -> None:
        nonlocal at
        while repeat > 0:
            end = min(len(calls), at + repeat)
            rows[:, 1], rows[:, 2] = at, end
            if len(tables) == 1:
                function(addresses[0])
            else:
                thread_pool(len(tables)).run(entry, addresses)
            at, repeat = end % len(calls), repeat - (end - at)

    return run
