"""What every test of native kernels checks, and the targets that it is checked for."""

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.guarded import CANARY, GuardedArray
from tilewise.kernels.native import executable, lower
from tilewise.kernels.native.macrokernel import shared_structure
from tilewise.kernels.native.microkernels import microkernel
from tilewise.kernels.nest import count
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import ALIGNMENT, Array, make_operands
from tilewise.kernels.oracle.reference import compare, reference
from tilewise.kernels.problem import Problem
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.target import Target, detect

AVX2 = frozenset({"avx2", "fma"})


def lowered_targets() -> list[Target]:
    """This machine, and the same with fewer features handed to the code generator."""
    host = detect()
    narrow = Target(host.cpu, features=AVX2, vector_bytes=32, vector_registers=16)
    portable = Target(host.cpu, features=frozenset(), vector_bytes=16, vector_registers=16)
    tiles = {name for name in host.features if name.startswith("amx")}  # none comes without VNNI
    fewer = host.features - tiles - {"avx512bf16", "avx512vnni"}
    plain = replace(host, features=fewer, l2_bytes=1)  # panels that were packed ahead are far away
    return [host, plain, narrow, portable]


TARGETS = lowered_targets()


def check(problem: Problem, schedule: Schedule, target: Target, seed: int) -> None:
    """The result is right, nothing outside operands and scratch is touched, the counts hold.

    With an odd seed the code is that of a large problem: a driver that other schedules share,
    and one step of the reduction at a time in the micro-kernels that few calls would go to.
    """
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setattr(shared_structure, "LEAST_WORK", 0)
            patch.setattr(microkernel, "RARE_SHARE", 1.0)
        scratch: list[GuardedArray] = []

        def guarded_scratch(shape: tuple[int, ...], dtype: type) -> Array:
            scratch.append(GuardedArray(np.full(shape, CANARY, dtype), ALIGNMENT))
            return scratch[-1].array

        patch.setattr(executable, "empty_aligned", guarded_scratch)
        _check(problem, schedule, target, seed)
        assert len(scratch) in (2, 3) and all(panels.is_intact() for panels in scratch)


def _check(problem: Problem, schedule: Schedule, target: Target, seed: int) -> None:
    operands = make_operands(problem, seed)
    exact = reference(problem, operands)
    expected = expected_by(problem, operands, exact, schedule.algorithm)
    guarded = {name: GuardedArray(array) for name, array in operands.items()}
    lowered = lower(problem, schedule, target)
    counts = lowered.counted_run({name: g.array for name, g in guarded.items()})
    error, tolerance = compare(problem, guarded["C"].array, expected)
    assert error <= tolerance, (problem, schedule)
    assert all(g.is_intact() for g in guarded.values())
    for name in ("A", "B"):
        assert np.array_equal(guarded[name].array, operands[name])
    meant = count(lowered.nest)
    assert counts["micro_kernels"] == meant.micro_kernels
    assert {k: v for k, v in counts.items() if k in meant.packs} == meant.packs
