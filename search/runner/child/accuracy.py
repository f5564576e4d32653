"""Compare the rms error of a method with the direct one's, on a few pixels.

The candidate's own micro-kernel and transforms compute a strip of tiles with the problem's input
channels (`tilewise.kernels.oracle.accuracy`). Direct and exact results are computed once.
"""

import functools
from dataclasses import dataclass

import numpy as np

from tilewise.kernels.instructions import known_instruction
from tilewise.kernels.native import lower
from tilewise.kernels.oracle.accuracy import (
    DRAWS,
    KINDS,
    MOST_TIMES,
    MOST_TIMES_IN_PARTS,
    Kind,
    operands_of_kind,
    over_draws,
    rms_error,
)
from tilewise.kernels.oracle.operands import Array, Operands, empty_aligned
from tilewise.kernels.oracle.reference import reference
from tilewise.kernels.problem import Conv2d, Problem
from tilewise.kernels.problem.keys import BF16X3
from tilewise.kernels.problem.spatial import canonical
from tilewise.kernels.schedule import Schedule, chosen, loop_nest
from tilewise.kernels.steps.winograd import outputs_of
from tilewise.kernels.target.model import Target
from tilewise.search.runner.protocol import CandidateFailureError

LINES = 4  # of the result, or those of a higher tile
TILE = 4  # pixels
LEAST_TILES, MOST_TILES = 12, 24  # of so many pixels, in a strip
COLS = 96  # the widest register tile
DIRECT_ROWS, DIRECT_VECTORS = 4, 2

Errors = dict[str, float]
"""Times the direct method's rms error, by the kind of operands."""


def errors_of(problem: Problem, schedule: Schedule, target: Target) -> Errors:
    """Return a schedule's rms errors relative to the direct method; empty for a direct one."""
    nest = loop_nest(problem, schedule)
    instruction = nest.compute.instruction
    if nest.algorithm is None and not (instruction and known_instruction(instruction).accuracy):
        return {}
    tile = nest.tile
    strips = _strips(_longest(problem), target)
    tiles = min(tile.rows * max(1, -(-LEAST_TILES // tile.rows)), MOST_TILES)
    # Tiles of Winograd's algorithm are of pixels.
    if nest.algorithm and problem.window != (1, 1):
        height, width = nest.algorithm.tile
        shape, cols = (_whole(LINES, height), _whole(tiles * TILE, width)), tile.cols
    else:
        shape, cols = (LINES, tiles * TILE // LINES), COLS
    part = _strip(problem, shape, min(cols, COLS))
    run = lower(part, _on_a_strip(schedule), target)

    def times_direct(strip: _Strip) -> float:
        operands = _part_of(strip.operands, part)
        run.run(operands)
        exact = strip.exact[:, : part.oh, : part.ow, : part.co]
        return rms_error(operands["C"], exact) / strip.direct

    return {kind: over_draws([times_direct(strip) for strip in strips[kind]]) for kind in KINDS}


def direct_errors(problem: Problem, target: Target) -> Errors:
    """Return the direct method's rms errors relative to the result's root mean square."""
    strips = _strips(_longest(problem), target)
    return {
        kind: over_draws([one.direct / rms_error(np.zeros(()), one.exact) for one in draws])
        for kind, draws in strips.items()
    }


def check_accuracy(problem: Problem, schedule: Schedule, target: Target) -> Errors:
    """Return `errors_of`, or raise CandidateFailureError if they are too large."""
    errors = errors_of(problem, schedule, target)
    most = MOST_TIMES_IN_PARTS if problem.accuracy == BF16X3 else MOST_TIMES
    for kind, times in errors.items():
        if not times <= most:
            raise CandidateFailureError(
                "wrong",
                f"on {kind} operands the rms error is {times:.2f} times the direct method's, "
                f"more than the {most:g} of accuracy={problem.accuracy}",
            )
    return errors


@dataclass(frozen=True)
class _Strip:
    """Operands of one kind, the exact result, and the rms error of the direct method."""

    operands: Operands
    exact: Array
    direct: float


def _longest(problem: Problem) -> Conv2d:
    """Return the strip that contains every other."""
    highest = max((LINES, *outputs_of(problem)))
    return _strip(problem, (highest, MOST_TILES * TILE), COLS)


def _whole(pixels: int, tile: int) -> int:
    return max(1, pixels // tile) * tile


def _strip(problem: Problem, shape: tuple[int, int], co: int) -> Conv2d:
    """Return a convolution without padding that computes some lines and pixels.

    The rows of a matmul are pixels, their values channels.
    """
    (lines, pixels), (kh, kw) = shape, problem.window
    return Conv2d(
        n=1,
        h=(lines - 1) * problem.strides[0] + kh,
        w=(pixels - 1) * problem.strides[1] + kw,
        ci=problem.depth // (kh * kw),
        co=co,
        kh=kh,
        kw=kw,
        stride=canonical(problem.strides),
        dtype=problem.element.name,
        accuracy=problem.accuracy,
    )


@functools.lru_cache(maxsize=4)
def _strips(problem: Conv2d, target: Target) -> dict[Kind, tuple[_Strip, ...]]:
    """Return the longest and widest strip of every kind and draw."""
    cols = DIRECT_VECTORS * target.lanes(problem.dtype)
    choices = {"pack_b": True, "image_rows": 0, "register": (DIRECT_ROWS, cols)}
    run = lower(problem, Schedule(tuple(chosen(problem, choices).steps)), target)

    def drawn(kind: Kind, seed: int) -> _Strip:
        operands = operands_of_kind(problem, kind, seed)
        exact = reference(problem, operands).value
        run.run(operands)
        return _Strip(operands, exact, rms_error(operands["C"], exact))

    return {kind: tuple(drawn(kind, seed) for seed in range(DRAWS[kind])) for kind in KINDS}


def _on_a_strip(schedule: Schedule) -> Schedule:
    """Return the steps that decide the rounding, without cuts."""
    kept = (schedule.algorithm, "pack", "instruction", "register", "unroll")
    return Schedule(tuple(step for step in schedule.steps if step in kept or step.name in kept))


def _part_of(operands: Operands, part: Conv2d) -> Operands:
    """Return the first pixels and filters of a strip as contiguous operands."""
    shapes = part.operand_shapes
    slices = {
        "A": operands["A"][:, : part.h, : part.w],
        "B": operands["B"][..., : part.co],
        "C": operands["C"][:, : part.oh, : part.ow, : part.co],
    }
    made = {}
    for name, array in slices.items():
        made[name] = empty_aligned(shapes[name], array.dtype.type)
        made[name][...] = array
    made["C"].fill(np.nan)
    return made
