"""Where the register tiles of a line lie, and what each finds of the image.

A tile that would reach beyond the line is moved back: some outputs are then computed twice, the
same each time. What a tile reads beside the image is known when its code is written: tiles that
read alike, and follow each other, share it.
"""

from dataclasses import dataclass

from tilewise.kernels.native.microkernels.window.spec import Axis

Found = tuple[bool, ...]
"""For neighbouring outputs, whether the image has the pixel that each reads for one tap."""


@dataclass(frozen=True)
class Run:
    """Tiles that follow each other and read alike.

    A tile has units: single outputs, or the outputs of a vector.

    Attributes:
        first: the first output of the first tile.
        count: tiles.
        step: outputs from one tile to the next.
        starts: the first output of each of a tile's units, from the tile's first output on.
        found: for each unit and tap.
    """

    first: int
    count: int
    step: int
    starts: tuple[int, ...]
    found: tuple[tuple[Found, ...], ...]


def runs(axis: Axis, unit: int, units: int) -> list[Run]:
    """The tiles of a line, each of so many units of `unit` outputs; fewer where a line has less."""
    starts, made = _starts(axis.outputs, unit), list[Run]()
    for at in range(0, len(starts), units):
        tile = starts[at : at + units]
        if len(tile) < units <= len(starts):
            tile = starts[-units:]
        one = _single(axis, unit, tile)
        if made and _goes_on(made[-1], one):
            last = made.pop()
            step = one.first - (last.first + (last.count - 1) * last.step)
            one = Run(last.first, last.count + 1, step, last.starts, last.found)
        made.append(one)
    return made


def _starts(outputs: int, unit: int) -> list[int]:
    """Where units begin that cover all outputs; the last is moved back to end with them."""
    starts = list(range(0, outputs - unit + 1, unit))
    return [*starts, outputs - unit] if outputs % unit else starts


def _single(axis: Axis, unit: int, tile: list[int]) -> Run:
    found = tuple(
        tuple(
            tuple(axis.exists(start + output, tap * axis.dilation) for output in range(unit))
            for tap in range(axis.taps)
        )
        for start in tile
    )
    return Run(tile[0], 1, 0, tuple(start - tile[0] for start in tile), found)


def _goes_on(last: Run, one: Run) -> bool:
    """Whether a tile follows a run's last one at the run's step, and reads alike."""
    step = one.first - (last.first + (last.count - 1) * last.step)
    return (last.starts, last.found) == (one.starts, one.found) and last.step in (0, step)
