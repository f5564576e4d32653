"""What seeded searches ask for: a change that is to keep decisions keeps these."""

import pytest

from benchmarks.places import SPACES
from benchmarks.replay.replay import RecordedSpace, replay
from tilewise.search.recording import Recording
from tilewise.search.records import TuneRequest


@pytest.mark.parametrize("name", ["large-f32", "column-f32", "sweep-bf16"])
def test_a_seeded_search_asks_for_the_same_schedules(name: str, golden) -> None:
    """The tiles in the order of the space, and the schedules that each sampler tries."""
    space = RecordedSpace.of(Recording.load(SPACES / f"{name}.json.gz"))
    lines = [f"tiles {' '.join(map(str, space.values('tile')))}"]
    for sampler in ("surrogate", "local", "tpe", "random"):
        tried = replay(space, TuneRequest(trials=40, sampler=sampler, seed=3)).trials
        lines.append(f"{sampler} {' '.join(trial.schedule.hash for trial in tried)}")
    golden(f"{name}.txt", "\n".join(lines) + "\n")
