"""What stands in for a schedule that is not stored: labelled, and never without being asked for."""

from dataclasses import replace

import pytest
from sqlalchemy import update

from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target.compatible import can_run, likeness
from tilewise.service.db import models, writing
from tilewise.service.db.rows import machine_row
from tilewise.service.results import integrity, nearest
from tilewise.service.results.nearest import Asked
from tilewise.service.results.stored import Work

KEY = parse_problem(PROBLEM).key
AVX2 = ("avx", "avx2", "fma", "f16c", "bmi")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512vl")
VNNI = (*AVX512, "avx512vnni")
BF16 = (*VNNI, "avx512bf16", "avx512vbmi")


@pytest.mark.parametrize(
    ("kernels_of", "on", "runs"),
    [
        (VNNI, VNNI, True),
        (VNNI, BF16, True),
        (BF16, VNNI, False),
        (AVX2, AVX512, False),  # registers of half the width
        (AVX512, AVX2, False),
        (("neon",), ("neon", "dotprod"), True),
        (("neon",), AVX2, False),
        ((), AVX2, False),
    ],
)
def test_which_processors_run_the_kernels_of_others(kernels_of, on, runs):
    assert can_run(kernels_of, on) == runs


def test_likeness_is_of_all_features():
    assert likeness(AVX2, AVX2) == 1.0
    assert likeness(BF16, VNNI) > likeness(BF16, AVX512) > likeness(BF16, AVX2) > 0
    assert likeness((), ()) == 1.0


@pytest.fixture
def enter(sessions, machine):
    """Enters a machine with some features."""

    def make(cpu, features):
        with writing(sessions) as session:
            other = replace(machine, host=f"host of {cpu}", cpu=cpu, features=tuple(features))
            machine_row(session, other)

    return make


@pytest.fixture
def moved(sessions, tuned):
    """Says of the stored schedule and its proofs that they are of another processor."""

    def make(cpu):
        target = f"cpu:{cpu},threads=1"
        with writing(sessions) as session:
            session.execute(update(models.Job).values(target=target))
            row = session.query(models.Schedule).one()
            row.target = target
            work = Work.of(row)
            row.digest = integrity.schedule_digest(work, row)
            for proof in session.query(models.Proof):
                proof.digest = integrity.proof_digest(work, proof)
        return target

    return make


def get(client, path="", **query):
    return client.get(f"/v1/schedules{path}", params={"problem": PROBLEM, **query})


def test_the_targets_own_is_exact(client, tuned):
    for match in ("exact", "nearest"):
        assert get(client, match=match).json()["match"] == {"kind": "exact", "differs": {}}
    script = client.get(f"/v1/schedules/{KEY}/script")
    assert script.headers["Tilewise-Match"] == "exact"
    assert script.headers["Cache-Control"] == "no-cache"


def test_one_of_another_toolchain_is_labelled(client_factory, machine, tuned):
    newer = client_factory(toolchain="a newer one")
    differs = {"toolchain": {"asked": "a newer one", "given": TOOLCHAIN}}
    for match in ("exact", "nearest"):
        found = get(newer, match=match).json()
        assert found["match"] == {"kind": "toolchain", "differs": differs} and found["stale"]
    for name in ("script", "script?match=nearest"):
        headers = newer.get(f"/v1/schedules/{KEY}/{name}").headers
        assert headers["Tilewise-Match"] == "toolchain"
        assert headers["Tilewise-Toolchain"] == TOOLCHAIN
        assert headers["Tilewise-Target"] == machine.target


def test_one_of_another_processor_is_given_to_who_asks_for_it_alone(client, enter, moved, machine):
    given = moved("other")
    enter("other", [name for name in machine.features if name != "sha"])
    assert get(client).status_code == 404
    assert client.get(f"/v1/schedules/{KEY}/script").status_code == 404
    found = get(client, match="nearest").json()
    differs = {"target": {"asked": machine.target, "given": given}}
    assert found["match"] == {"kind": "processor", "differs": differs}
    assert found["target"] == given and not found["stale"]
    script = client.get(f"/v1/schedules/{KEY}/script", params={"match": "nearest"})
    assert script.status_code == 200
    assert script.headers["Tilewise-Match"] == "processor"
    assert script.headers["Tilewise-Target"] == given
    kernel = client.get(f"/v1/schedules/{KEY}/kernel", params={"match": "nearest"})
    assert kernel.headers["Tilewise-Match"] == "processor"


def test_another_toolchain_of_a_near_processor_differs_in_both(
    client_factory, enter, moved, machine
):
    given = moved("other")
    enter("other", machine.features)
    found = get(client_factory(toolchain="a newer one"), match="nearest").json()
    assert found["match"]["kind"] == "processor" and found["stale"]
    assert found["match"]["differs"] == {
        "target": {"asked": machine.target, "given": given},
        "toolchain": {"asked": "a newer one", "given": TOOLCHAIN},
    }


@pytest.mark.parametrize("features", [("avx2", "fma"), (), None])
def test_what_cannot_run_here_never_stands_in(client, enter, moved, sessions, features):
    moved("other")
    if features is not None:
        enter("other", features)
    assert get(client, match="nearest").status_code == 404


def test_another_number_of_threads_never_stands_in(client, enter, moved, machine):
    moved("other")
    enter("other", machine.features)
    two = f"cpu:{machine.cpu},threads=2"
    assert get(client, match="nearest", target=two).status_code == 404


def test_the_most_alike_processor_comes_first(sessions, machine, enter):
    here = replace(machine, cpu="asked", features=BF16)
    for cpu, features in (("a", AVX512), ("b", VNNI), ("c", (*BF16, "more")), ("d", AVX2)):
        enter(cpu, features)
    with sessions() as session:
        found = nearest.compatible_targets(session, "cpu:asked,threads=4", here)
        unknown = nearest.compatible_targets(session, "cpu:unknown,threads=4", here)
        of_b = nearest.compatible_targets(session, "cpu:b,threads=1", here)
    assert found == [f"cpu:{cpu},threads=4" for cpu in "cba"]
    assert unknown == [] and of_b == ["cpu:a,threads=1"]


@pytest.mark.sqlite_only("its columns alone take values of another type")
def test_a_garbled_row_of_a_machine_stands_in_nobodys_way(sessions, machine, enter):
    enter("other", machine.features)
    with writing(sessions) as session:
        session.connection().exec_driver_sql("UPDATE machines SET features = '[1, {'")
    with sessions() as session:
        assert (
            nearest.find(session, [KEY], Asked(machine.target, "", match="nearest"), machine) == {}
        )
