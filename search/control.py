"""A control: the fastest candidate so far, timed again beside a new one when the machine changed.

Who else runs on a shared machine can make everything take half as long again for seconds, and
no clock of ours tells. A candidate that is timed in such a second would be lost, and one of a
good second stay the best for ever. So where a candidate looks better than the best, or behind it,
the best is timed once more: has its time changed, both are timed in interleaved rounds, and what
counts is their ratio. (A control in every block: Box, Hunter and Hunter, Statistics for
Experimenters, 2005, chapter 4.)
"""

import time
from dataclasses import dataclass
from math import exp

from search.measure import Run, Samples, interleave, standings

CHANGED = 0.04  # of the control's time: more than its samples spread on a calm machine
CALM_S = 0.2  # seconds for which a control that had not changed is believed
ROUNDS = 5
FARTHEST = 2.5  # times the control: slower ones are slow at any pace


@dataclass
class Control:
    """The fastest candidate that a process has timed.

    Attributes:
        run: it; None while there is none.
        seconds: what it takes at the pace that all trials are told in.
        repeat: runs in one of its samples.
    """

    run: Run | None = None
    seconds: float = float("inf")
    repeat: int = 1
    _calm_until: float = 0.0

    def pace(self, run: Run, samples: Samples, seconds: float) -> float:
        """How many times slower than usual everything is now; 1 where nothing speaks for that.

        Samples of the candidate that are taken for it are added to its own.

        Args:
            run: the candidate.
            samples: of it, as they were taken.
            seconds: their median.
        """
        if self.run is None or seconds > FARTHEST * self.seconds or not self._has_changed():
            return 1.0
        candidate, control = interleave([run, self.run], ROUNDS)
        own, its = standings(
            [list(zip(s.rounds, s.times, strict=True)) for s in (candidate, control)]
        )
        samples.times += candidate.times
        samples.rejected += candidate.rejected
        return seconds / (self.seconds * exp(own - its))

    def _has_changed(self) -> bool:
        assert self.run is not None
        if time.monotonic() < self._calm_until:
            return False
        again = Samples(self.repeat)
        again.take(self.run)
        changed = not again.times or abs(again.times[0] / self.seconds - 1) > CHANGED
        self._calm_until = 0.0 if changed else time.monotonic() + CALM_S
        return changed

    def learn(self, run: Run, seconds: float, repeat: int) -> None:
        """Take a candidate for the control, if it is faster than the present one."""
        if seconds < self.seconds:
            self.run, self.seconds, self.repeat = run, seconds, repeat
