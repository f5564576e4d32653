"""A control beside a candidate: what is known of it, and what comes of both."""

from dataclasses import dataclass

from tilewise.search.timing.samples import Run, Samples


@dataclass(frozen=True)
class Control:
    """A run whose time is known.

    Attributes:
        run: it.
        seconds: what one takes at pace 1.
        repeat: runs in one sample.
    """

    run: Run
    seconds: float
    repeat: int


@dataclass(frozen=True)
class Bounds:
    """What a candidate's time means, in seconds at pace 1.

    Attributes:
        stop_above_s: what is no longer interesting.
        behind_s: what the finals will not have.
    """

    stop_above_s: float
    behind_s: float


@dataclass(frozen=True)
class Paced:
    """What came of timing a candidate beside a control.

    Attributes:
        samples: of the candidate, as they were.
        stopped: whether it was given up early.
        pace: of the machine meanwhile: how many times longer than usual everything took. The
            samples' median over it is the candidate's time. None where nothing told it.
        takes_over: whether it may be the control: it was clearly faster at both looks, the
            second of which its pace is of.
    """

    samples: Samples
    stopped: bool
    pace: float | None
    takes_over: bool = False
