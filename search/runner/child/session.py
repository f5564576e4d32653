"""One problem in a runner's child: operands, reference, scratch and binding."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewise.kernels.native.microbench import peak_of
from tilewise.kernels.oracle.fast_algorithms import expected_by
from tilewise.kernels.oracle.operands import Operands, empty_aligned, make_operands, poison
from tilewise.kernels.oracle.reference import Expected, compare, reference
from tilewise.kernels.problem.keys import BF16X3
from tilewise.kernels.schedule import Schedule, fast_algorithm
from tilewise.kernels.steps import Step
from tilewise.search.runner.child.accuracy import Errors, check_accuracy
from tilewise.search.runner.child.compiler import Compiler
from tilewise.search.runner.child.lowered import BoundCall, Lowered, lowered
from tilewise.search.runner.protocol import CandidateFailureError
from tilewise.search.timing.cold import (
    MOST_COPIED_BYTES,
    ColdMode,
    cold_mode,
    in_turn,
    largest_cache,
    least_s,
)
from tilewise.search.timing.samples import Run
from tilewise.search.timing.speed_factor import Control

if TYPE_CHECKING:  # peers are loaded with the first request for one
    from tilewise.search.peers.screen import Maker, TimedVariant


@dataclass
class BufferPlace:
    """Buffers: operands, and panels that several schedules share."""

    operands: Operands
    arena: dict[str, Any] = field(default_factory=dict)


class Session(Compiler):
    """One problem's operands, reference and scratch, used by every trial."""

    def __init__(self, problem: str, target: str, seed: int, cache: str = "hot") -> None:
        super().__init__(problem, target)
        self.operands = make_operands(self.problem, seed)
        self.initial = self.operands["C"].copy()
        self.expected = reference(self.problem, self.operands)
        self.places = [BufferPlace(self.operands)]
        self.cache = cache
        self.cold: ColdMode | None = None
        self.speed_factor: float | None = None  # unknown until a control was timed
        self.control: tuple[Any, Control] | None = None
        self.screened: dict[str, list[TimedVariant]] = {}
        self.makers: dict[str, Maker] = {}
        self._expected: dict[Step | None, Expected] = {}

    def call(self, steps: Any) -> BoundCall:
        """Compile a schedule and bind it."""
        return self.bind(lowered(self.problem, steps, self.target), self.places[0])

    def bind(self, executable: Lowered, place: BufferPlace) -> BoundCall:
        """Bind code to the buffers of a place.

        Constant weights are packed at binding and stay, so their panels are not shared.
        """
        for name, size in executable.scratch_bytes.items():
            held = place.arena.get(name)
            own = executable.packs_ahead(name)
            if held is None or held.size < size or own:
                place.arena[name] = empty_aligned((size,), np.uint8)
        return executable.bind(place.operands, place.arena)

    def new_place(self) -> BufferPlace:
        """Return copies of the operands; large ones are shared."""
        if sum(array.nbytes for array in self.operands.values()) > MOST_COPIED_BYTES:
            return BufferPlace(self.operands)
        copies = {}
        for name, array in self.operands.items():
            copies[name] = empty_aligned(array.shape, array.dtype.type)
            copies[name][...] = array
        return BufferPlace(copies)

    def how_cold(self, first: Run) -> ColdMode | None:
        """Return the cold mode, chosen by the problem's first candidate; None if hot."""
        if self.cache == "hot":
            return None
        if self.cold is None:
            size = sum(array.nbytes for array in self.operands.values())
            self.cold = cold_mode(least_s(first), size, largest_cache(self.target))
            self.places += [self.new_place() for _ in range(self.cold.copies - 1)]
        return self.cold

    def on_copies(self, steps: Any, first: Run) -> Run:
        """Return the call on every copy of the operands of the cold mode."""
        if len(self.places) == 1:
            return first
        executable = lowered(self.problem, steps, self.target)
        return in_turn([first, *(self.bind(executable, place) for place in self.places[1:])])

    def peak(self) -> float:
        """Measure the multiply-add peak for the problem in GFLOP/s."""
        return peak_of(self.target, self.problem)

    def accuracy(self, steps: Any) -> Errors:
        """Return the rms errors relative to the direct method; empty if direct.

        Raises CandidateFailureError if they exceed what `accuracy` allows.
        """
        is_in_parts = self.problem.accuracy == BF16X3 and self.target.kind != "iree"
        if fast_algorithm(steps) is None and not is_in_parts:
            return {}
        return check_accuracy(self.problem, Schedule.from_json(steps), self.target)

    def expected_of(self, steps: Any) -> Expected:
        """Return the reference for a schedule, whose method decides the tolerance."""
        if fast_algorithm(steps) is None:
            return self.expected
        algorithm = Schedule.from_json(steps).algorithm
        if algorithm not in self._expected:
            self._expected[algorithm] = expected_by(
                self.problem, self.operands, self.expected, algorithm
            )
        return self._expected[algorithm]

    def check(self, run: Run, steps: Any = ()) -> float:
        """Run once on poisoned (or initial) C; return the largest error.

        Without steps the direct method's tolerance applies. Raises CandidateFailureError if it is
        wrong.
        """
        result = self.operands["C"]
        if self.problem.accumulates:
            result[...] = self.initial
        else:
            poison(result)
        run(1)
        error, tolerance = compare(self.problem, result, self.expected_of(steps))
        if not error <= tolerance:
            message = f"largest deviation {error:.3g}, tolerance {tolerance:.3g}"
            raise CandidateFailureError("wrong", message)
        return error
