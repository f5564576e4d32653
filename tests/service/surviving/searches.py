"""A search for worker children that notes, for each trial, whose it is."""

import os
import time
from pathlib import Path

from tests.service import fakes

PAUSE_S = 0.05


def tune(problem, target, request, store, *, on_trial=None, should_stop=None, **hooks):
    """Trials in order, as `fakes.tune`; a line `m=M NUMBER` for each that is timed."""

    class Noting:
        """The store, which notes a trial as it would be timed: before it is kept."""

        def trials(self):
            return store.trials()

        def add(self, trial):
            time.sleep(PAUSE_S)
            with Path(os.environ[fakes.LOG]).open("a") as file:
                file.write(f"m={problem.m} {trial.number}\n")
            store.add(trial)

    return fakes.tune(
        problem, target, request, Noting(), on_trial=on_trial, should_stop=should_stop
    )
