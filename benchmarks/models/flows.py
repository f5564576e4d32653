"""ResNet-50's convolutions as a flow of steps, with layouts and costs that are made up."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from tilewise.search.networks.choice import Alternative, Flow, FlowStep, conversions

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, first stride
GFLOPS, GBS = 264.0, 20.0  # of the prototype's core


class _Builder:
    """Convolutions one after the other; costs are by layouts of what is read and made.

    Args:
        layouts: how many there are.
        spread: by which two pairs of layouts may differ, relative.
        seed: of the costs.
    """

    def __init__(self, layouts: int, spread: float, seed: int) -> None:
        self.layouts, self.spread = layouts, spread
        self.random = np.random.default_rng(seed)
        self.steps: list[FlowStep] = []
        self.moves: list[Any] = [self._move(224 * 224 * 3)]

    def conv(
        self, source: int, size: int, channels: tuple[int, int], taps: int, residual: int | None
    ) -> int:
        """Add one with `size` squared outputs; the tensor that it makes.

        A residual is read in the layout that the result has.
        """
        ci, co = channels
        base = 2e3 * size * size * co * ci * taps * taps / (GFLOPS * 1e9)
        factors = 1 + self.spread * self.random.random((self.layouts, self.layouts))
        reads = (source,) if residual is None else (source, residual)
        self.moves.append(self._move(size * size * co))
        made = len(self.moves) - 1
        ways = tuple(
            Alternative(base * factors[a, b], (a,) if residual is None else (a, b), (b,))
            for a in range(self.layouts)
            for b in range(self.layouts)
        )
        self.steps.append(FlowStep(reads, (made,), ways))
        return made

    def _move(self, elements: int) -> np.ndarray:
        """Milliseconds of a conversion, by both layouts."""
        factors = 1 + 0.3 * self.random.random((self.layouts, self.layouts))
        return factors * 8e3 * elements / (GBS * 1e9)

    def conversion(self, tensor: int, made: Hashable, wanted: Hashable) -> float:
        return float(self.moves[tensor][made, wanted])


def resnet50(layouts: int, spread: float = 0.1, seed: int = 0) -> Flow:
    """53 convolutions, 16 residual additions; the image comes and the features leave in layout 0.

    The pool behind the first convolution keeps its layout.
    """
    made = _Builder(layouts, spread, seed)
    x, size, channels = made.conv(0, 112, (3, 64), 7, None), 56, 64
    for width, blocks, first in STAGES:
        for block in range(blocks):
            out = size if block else size // first
            short = x if block else made.conv(x, out, (channels, 4 * width), 1, None)
            y = made.conv(x, size, (channels, width), 1, None)
            y = made.conv(y, out, (width, width), 3, None)
            x = made.conv(y, out, (width, 4 * width), 1, short)
            size, channels = out, 4 * width
    return Flow(tuple(made.steps), made.conversion, {0: 0}, {x: 0})


def priced(flow: Flow, picks: Sequence[int]) -> float:
    """The cost of a choice."""
    taken = [step.alternatives[pick] for step, pick in zip(flow.steps, picks, strict=True)]
    copies = sum(flow.conversion(*needed) for needed in conversions(flow, picks))
    return sum(one.cost for one in taken) + copies
