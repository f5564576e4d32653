"""For which convolutions the Winograd algorithm is offered, and with tiles of how many outputs."""

from math import prod

from tilewise.kernels.nest import Nest
from tilewise.kernels.schedule import Winograd, begin
from tilewise.kernels.steps.transformed import POINT
from tilewise.kernels.steps.winograd import why_not_winograd
from tilewise.kernels.target.cores import LINE_BYTES
from tilewise.search.space.workload import Workload

LEAST_CHANNELS = {
    (3, 3): {2: 1, 4: 8},
    (5, 5): {2: 8, 3: 16},
    (1, 3): {4: 16, 6: 96},
    (1, 5): {4: 8},
    (1, 7): {2: 16},
    (3, 5): {2: 8, 3: 8},
    (3, 7): {2: 8},
    (5, 7): {2: 32},
}
"""The outputs of tiles that pay, and the least input channels that each is offered for.

By the filter's sides, the shorter one first. Rounding in the transforms is the same for any depth,
and that of the direct method grows with it: F(4x4,3x3) is beyond what `accuracy=standard` allows
from 4 channels down, and F(3x3,5x5) from 8 down where nothing fuses multiply and add. F(4) of three
taps costs more than it saves from 8 channels down.
"""
LEAST_CHANNELS_OF_STRIDED = {(3, 3): {2: 16, 3: 16}, (5, 5): {2: 16}}
"""The same of filters of stride 2, whose transforms round less than direct sums at any depth."""

RESULT_OF_L2 = 0.5
"""Of the second cache, a result beyond which its lines may be written past the caches.

On Emerald Rapids, with 2 MiB, 5x80x100x128 (20 MB) wins 10 to 15% by it, 28x28x512 (1.6 MB) 5%,
56x56x128 (1.6 MB) 0 to 3%, and 28x28x256 (0.8 MB) loses 1% or wins 2%.
"""


def has_far_result(workload: Workload) -> bool:
    """Whether the transforms write whole lines of a result too large for its share of L2."""
    problem = workload.problem
    if not outputs_of(workload) or problem.has_channels_first or problem.accumulates:
        return False
    shape, size = problem.operand_shapes["C"], problem.element.bytes
    has_lines = workload.lanes * size == LINE_BYTES and shape[-1] % workload.lanes == 0
    return has_lines and prod(shape) * size > RESULT_OF_L2 * workload.target.l2_bytes


def outputs_of(workload: Workload) -> tuple[int, ...]:
    """The outputs of tiles that a workload is offered; none where it is computed directly."""
    problem = workload.problem
    if why_not_winograd(problem) is not None:
        return ()
    least_channels = LEAST_CHANNELS if problem.stride == 1 else LEAST_CHANNELS_OF_STRIDED
    offered = least_channels.get((min(problem.window), max(problem.window)), {})
    channels = problem.depth // prod(problem.window)
    return tuple(output for output, least in offered.items() if channels >= least)


def nest_of_tiles(workload: Workload, output: int) -> Nest:
    """The products of transformed tiles of so many outputs, with no other step."""
    return begin(workload.problem, Winograd(output))


def has_large_filter(workload: Workload) -> bool:
    """Whether a filter that is transformed ahead is so large that tiles wait for it."""
    outputs = outputs_of(workload)
    if not outputs or not workload.problem.has_constant_weights:
        return False
    points = nest_of_tiles(workload, max(outputs)).extent(POINT)
    channels = workload.stored["A" if workload.nest.image == "B" else "B"].total
    taps = prod(workload.problem.window)
    target = workload.target
    return points * channels // taps > target.core.transforms.fetched_from * target.l2_bytes
