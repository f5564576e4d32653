import re
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from benchmarks.serving.populated import TOOLCHAINS, Sizes, populate
from tilewise.search.verdicts import TOLERANCE, Verdict, verdict_of_speeds
from tilewise.service.dashboard import fleet, stored
from tilewise.service.db import models, writing
from tilewise.service.results.integrity import result_digest
from tilewise.service.results.stored import ResultKey

TARGETS = ("cpu:znver4,threads=1", "cpu:znver4,threads=4", "cpu:znver5,threads=1")
PRESENT = TOOLCHAINS[1]
SEED = 7
STATES = {"regressed": "slower than before", "peer": "slower than a peer",
          "unproven": "not proven", "stale": "other toolchain"}  # fmt: skip


@pytest.fixture
def rows(sessions):
    """What answers in a store of three targets, by plain Python."""
    chance = Random(SEED)
    with writing(sessions) as session:
        populate(session.connection(), Sizes(160, 700))
        for machine in session.scalars(select(models.Machine).order_by(models.Machine.id)):
            machine.caches, machine.bandwidth_gbs = {"l3": 2**17}, chance.choice([None, 20.0])
        found = session.scalars(select(models.Schedule).order_by(models.Schedule.id)).all()
        for row in found:
            row.target, row.cache = TARGETS[row.problem_id % 3], ("hot", "cold")[row.problem_id % 2]
            row.gflops *= chance.uniform(0.9, 1.2)  # no two ratios are the same
            row.created_at += timedelta(days=chance.choice([0, 15]))
            width = chance.choice([0.0, 0.01, 0.05])
            row.low, row.high = row.gflops * (1 - width), row.gflops * (1 + width)
            row.digest = result_digest(ResultKey.of(row), row)
        proven = set(session.scalars(select(models.Proof.schedule_id).where(models.Proof.ok)))
        machines = {one.id: one for one in session.scalars(select(models.Machine))}
        works = groupby(sorted(found, key=lambda row: row.problem_id), lambda row: row.problem_id)
        return [_answering(list(of), machines, proven) for _, of in works]


def _answering(of, machines, proven):
    row = max(of, key=lambda one: (one.toolchain.identity == PRESENT, one.created_at, one.id))
    peer = max((one["gflops"] for one in (row.peers or {}).values()), default=None)
    speeds = [(one.low, one.high) for one in of if one is not row]
    own, machine = (row.low, row.high), machines[row.machine_id]
    is_slower = [verdict_of_speeds(one, own, TOLERANCE) == Verdict.SLOWER for one in speeds]
    states = {
        "regressed": any(is_slower),
        "peer": peer is not None and row.high < peer,
        "unproven": row.id not in proven,
        "stale": row.toolchain.identity != PRESENT,
    }
    memory = (machine.caches["l3"], machine.bandwidth_gbs)
    name = row.problem.canonical
    limit = fleet.roof(name, row.target, row.cache, row.peak_gflops, memory)
    return {
        "id": row.id, "problem": name, "target": row.target, "op": name.partition(":")[0],
        "dtype": re.findall(r"\bdtype=(\w+)", name)[0], "states": states, "speed": row.gflops,
        "share": row.gflops / limit, "ratio": row.gflops / peer if peer else None,
        "newest": -row.created_at.timestamp(), "budget": row.budget,
    }  # fmt: skip


def _wanted(rows, asked):
    kept = [
        row
        for row in rows
        if all(getattr(asked, name) in ("", row[name]) for name in ("target", "op", "dtype"))
        and (asked.state != "attention" or any(row["states"].values()))
        and (asked.state in ("", "attention") or row["states"][asked.state])
        and all(word in f"{row['problem']} {row['target']}".lower()
                for word in asked.contains.lower().split())
    ]  # fmt: skip
    orders: dict[str, Any] = {
        "attention": lambda row: ([not row["states"][name] for name in STATES], row["share"]),
        "ratio": lambda row: (row["ratio"] is None, row["ratio"]),
        "problem": lambda row: (row["problem"], row["target"]),
        "created": lambda row: 0,
    }
    kept.sort(key=lambda row: (row["newest"], -row["id"]))
    return sorted(kept, key=orders.get(asked.order, itemgetter(asked.order)))


WORDS = ["", "matmul", "M=1", "conv n=64", "threads=4", "znver5", "%", "_", "k=64,"]
ASKED = st.builds(
    fleet.FleetQuery, target=st.sampled_from(["", *TARGETS, "cpu:none"]),
    op=st.sampled_from(["", *fleet.OPS]), dtype=st.sampled_from(["", "f32", "bf16", "f64"]),
    state=st.sampled_from(["", "", "attention", *STATES]), contains=st.sampled_from(WORDS),
    order=st.sampled_from(["attention", "share", "ratio", "speed", "problem", "created"]),
    page=st.sampled_from([1, 1, 2, 3]),
)  # fmt: skip


def test_filters_select_what_plain_python_does(client_factory, rows):
    client = client_factory(toolchain=PRESENT)

    def check(asked):
        found = _wanted(rows, asked)
        text = client.get(f"{asked.path()}&page={asked.page}").text
        start = stored.PAGE * (asked.page - 1)
        shown = [int(one) for one in re.findall(r'/problems/\w+\?schedule=(\d+)"', text)]
        assert shown == [row["id"] for row in found[start : start + stored.PAGE]]
        assert f"{len(found)} found" in text and "refused" not in text
        assert ('rel="next"' in text) == (len(found) > start + stored.PAGE)
        _check_targets(text, found)
        return len(found)

    @settings(max_examples=15, deadline=None, database=None)
    @given(ASKED)
    def ask(asked):
        check(asked)

    ask()
    counts = [check(fleet.FleetQuery(state=state)) for state in ("", "attention", *STATES)]
    assert min(counts) > 0
    assert f"tilewise_regressed_problems {counts[2]}.0" in client.get("/metrics").text


def _check_targets(text, found):
    """Each target has its own counts, and a link to the rows of each state."""
    for part in text.split('<section class="target"')[1:]:
        name = re.findall(r">(cpu:[^<]+)</a></h3>", part)[0]
        own = [row for row in found if row["target"] == name]
        bars = [int(count) for count in re.findall(r"%(?: or more)?: (\d+)</title>", part)]
        assert bars == fleet._distribution([row["share"] for row in own])
        for state, told in STATES.items():
            count = sum(row["states"][state] for row in own)
            link = re.search(rf'state={state}[^"]*">(\d+) {told}<', part)
            assert (int(link[1]) if link else 0) == count, (name, state)
        assert f"{sum(row['budget'] for row in own):,} trials in" in part
    assert text.count('<section class="target"') == len({row["target"] for row in found})


def test_a_slower_machine_is_seen(client, sessions, rows):
    """The speed is relative to each host and kind of peak, so only a change of one host shows."""
    with writing(sessions) as session:
        for number, more in ((6, ",accuracy=bf16x3"), (7, ",b=i4"), (8, ",b=i4,a=dynamic_i8")):
            session.get_one(models.Problem, number).canonical += more
            for kind in (models.Schedule, models.PastSchedule):
                of_peak = update(kind).where(kind.problem_id == number)
                session.execute(of_peak.values(peak_gflops=kind.peak_gflops / number))
        of_host = select(models.Schedule).where(models.Schedule.machine_id == 1)
        latest = session.scalars(of_host.order_by(models.Schedule.created_at.desc())).all()
        for row in latest[:8]:
            row.peak_gflops /= 2
        speeds = fleet._speeds(session)
        slow = session.get_one(models.Machine, 1).host
    lows = {name: min(speed for one in speeds.values() for _, speed in one["hosts"].get(name, []))
            for name in ("alder", "birch", "cedar")}  # fmt: skip
    assert min(lows, key=lows.__getitem__) == slow
    assert all(low == pytest.approx(1.0) for name, low in lows.items() if name != slow)
    assert "measured peak by day" in client.get("/").text


@pytest.mark.parametrize(("sizes", "cache", "threads", "bandwidth", "is_from_memory"), [
    ((64, 2000, 8), "hot", 1, 40.0, False), ((64, 2000, 8), "cold", 1, 40.0, True),
    ((8, 8192, 8192), "hot", 1, 40.0, True), ((8, 8192, 8192), "hot", 4, 40.0, False),
    ((8, 8192, 8192), "hot", 1, None, False), ((1024, 1024, 1024), "cold", 1, 40.0, False),
])  # fmt: skip
def test_memory_is_a_roof_if_operands_come_from_it(
    sizes, cache, threads, bandwidth, is_from_memory
):
    m, n, k = sizes
    place = f"matmul:m={m},n={n},k={k},dtype=f32", f"cpu:znver4,threads={threads}", cache
    fed = 40.0 * 2 * m * n * k / (4 * (m * k + k * n + m * n))
    found = fleet.roof(*place, 280.0, (32 * 2**20, bandwidth))
    assert found == pytest.approx(fed if is_from_memory else 280.0, rel=0.01)
