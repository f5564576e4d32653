"""Searches over tiles that begin at the nearer end: resumed, begun from a store, and replayed."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.search.samplers.landscape import timed
from tests.search.targets import FAR
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Alternate, Divide
from tilewise.search.engine.study import SearchStudy
from tilewise.search.model.analytical import Model
from tilewise.search.records import SAMPLERS, Solved, TrialRecord, TuneRequest
from tilewise.search.replay.recording import Recording
from tilewise.search.replay.replay import RecordedSpace, replay
from tilewise.search.space.points import Point
from tilewise.search.space.space import Space
from tilewise.search.space.tiles import tile_shape
from tilewise.search.transfer.starting_points import starting_points

ROW = parse_problem("matmul:m=1,n=1000,k=1000,dtype=f32")
SPACE = Space(ROW, FAR)
QUICK = [name for name in SAMPLERS if name != "gp"]


def seconds(space: Space, point: Point) -> float:
    """A time by which the tile `1x2w16e` is best, and the nearer end a gain for every tile."""
    shape = tile_shape(point["tile"])
    off = abs(shape.swept - 16) / 100 + abs(shape.width - 2) / 10 + (not shape.swept)
    return (1 + off) * (1.0 if shape.ends else 1.5) * 1e-4


def drawn(space: Space, count: int, *, ends: bool) -> list[TrialRecord]:
    """Trials of random points, each of another schedule."""
    random, found = Random(3), dict[str, Point]()
    while len(found) < count:
        point = space.draw(random)
        if tile_shape(point["tile"]).ends == ends and (key := space.legal_hash(point)):
            found.setdefault(key, point)
    times = [seconds(space, point) for point in found.values()]
    made = [timed(space, *one) for one in zip(range(count), found.values(), times, strict=True)]
    pairs = zip(made, times, strict=True)
    return [replace(trial, samples=(time,) * 6) for trial, time in pairs]


@pytest.mark.parametrize("sampler", QUICK)
def test_a_search_of_an_earlier_version_goes_on_with_them(sampler: str) -> None:
    """Its trials have no such tile, and one has a tile that is no value any more."""
    stored = drawn(SPACE, 4, ends=False)
    gone = stored[0].params | {"tile": "1x2w64e"}
    assert not SPACE.holds(gone)
    stored.append(replace(stored[0], number=4, params=gone, schedule=SPACE.schedule(gone)))
    search = SearchStudy(Model.shipped(SPACE), TuneRequest(sampler=sampler), stored)
    asked = []
    for number in range(5, 20):
        proposal = search.ask()
        assert proposal is not None
        asked.append(proposal.point)
        point = proposal.point
        record = timed(SPACE, number, point, seconds(SPACE, point))
        search.tell(proposal, replace(record, origin=proposal.origin))
    made = {SPACE.schedule(point).hash for point in asked}
    assert len(made) == len(asked) and made.isdisjoint(one.schedule.hash for one in stored)
    assert any(tile_shape(point["tile"]).ends for point in asked)


def test_what_was_best_of_a_relative_is_tried_early() -> None:
    """Also where a matrix is read in one order, and its best tile of the relative is not there."""
    best = {p.name: p.values[-1] for p in SPACE.parameters} | {"tile": "1x2w16e"}
    known = Solved(ROW, FAR.canonical, ((best, 100.0),))
    for text, tile in (("n=1300,k=900", "1x2w16e"), ("n=300,k=500", "1x2w16")):
        space = Space(parse_problem(f"matmul:m=1,{text},dtype=f32"), FAR)
        model = Model.shipped(space)
        (start,) = starting_points(model, [known])
        assert start["tile"] == tile
        search = SearchStudy(model, TuneRequest(), starts=[start])
        asked = [search.ask() for _ in range(4)]
        schedules = {space.schedule(p.point).hash for p in asked if p is not None}
        assert space.schedule(start).hash in schedules


def test_a_recording_with_them_is_kept_and_replayed(tmp_path: Path) -> None:
    trials = [*drawn(SPACE, 12, ends=False)]
    trials += [replace(one, number=12 + one.number) for one in drawn(SPACE, 12, ends=True)]
    made = Recording(ROW, FAR, {p.name: p.values for p in SPACE.parameters}, trials)
    made.save(tmp_path / "row.json.gz")
    found = Recording.load(tmp_path / "row.json.gz")
    assert [one.schedule for one in found.trials] == [one.schedule for one in trials]
    assert any(
        {Divide, Alternate} <= {type(step) for step in one.schedule.steps} for one in found.trials
    )
    space = RecordedSpace.of(found)
    assert [*space.trials] == [one.schedule.hash for one in trials]
    for trial in space.trials.values():
        assert space.schedule(space.nearest(trial.params)) == trial.schedule
    run = replay(space, TuneRequest(trials=len(trials), sampler="local"))
    assert {one.schedule.hash for one in run.trials} == set(space.trials)
