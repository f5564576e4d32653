from dataclasses import replace

import pytest
from sqlalchemy import update

from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.target import parse_target
from tilewise.kernels.target.features import can_run
from tilewise.service.db import models, writing
from tilewise.service.results import integrity, nearest
from tilewise.service.results.stored import ResultKey

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


@pytest.fixture
def moved(sessions, tuned, machine):
    """Says of the stored schedule and its proofs that they are of another processor."""

    def make(cpu="other", features=machine.features, target=None):
        target = target or replace(machine, cpu=cpu, features=tuple(features)).target
        with writing(sessions) as session:
            session.execute(update(models.Job).values(target=target))
            row = session.query(models.Schedule).one()
            row.target = target
            work = ResultKey.of(row)
            row.digest = integrity.result_digest(work, row)
            for proof in session.query(models.Proof):
                proof.digest = integrity.proof_digest(work, proof)
        return target

    return make


def get(client, path="", **query):
    return client.get(f"/v1/schedules{path}", params={"problem": PROBLEM, **query})


def test_the_targets_own_is_exact(client, tuned):
    for match in ("exact", "nearest"):
        assert get(client, match=match).json()["match"] == {
            "kind": "exact", "differs": {}, "reason": None, "range": None,
        }  # fmt: skip
    script = client.get(f"/v1/schedules/{KEY}/script")
    assert script.headers["Tilewise-Match"] == "exact"
    assert script.headers["Cache-Control"] == "no-cache"


def test_one_of_another_toolchain_is_labelled(client_factory, machine, tuned):
    newer = client_factory(toolchain="a newer one")
    differs = {"toolchain": {"asked": "a newer one", "given": TOOLCHAIN}}
    for match in ("exact", "nearest"):
        found = get(newer, match=match).json()
        assert (
            found["match"]
            == {
                "kind": "toolchain",
                "differs": differs,
                "reason": None,
                "range": None,
            }
            and found["stale"]
        )
    for name in ("script", "script?match=nearest"):
        headers = newer.get(f"/v1/schedules/{KEY}/{name}").headers
        assert headers["Tilewise-Match"] == "toolchain"
        assert headers["Tilewise-Toolchain"] == TOOLCHAIN
        assert headers["Tilewise-Target"] == machine.target


def test_one_of_another_processor_is_given_to_who_asks_for_it_alone(client, moved, machine):
    given = moved(features=[name for name in machine.features if name != "sha"])
    assert get(client).status_code == 404
    assert client.get(f"/v1/schedules/{KEY}/script").status_code == 404
    found = get(client, match="nearest").json()
    differs = {"target": {"asked": machine.target, "given": given}}
    assert found["match"] == {
        "kind": "processor",
        "differs": differs,
        "reason": None,
        "range": None,
    }
    assert found["target"] == given and not found["stale"]
    script = client.get(f"/v1/schedules/{KEY}/script", params={"match": "nearest"})
    assert script.status_code == 200
    assert script.headers["Tilewise-Match"] == "processor"
    assert script.headers["Tilewise-Target"] == given
    kernel = client.get(f"/v1/schedules/{KEY}/kernel", params={"match": "nearest"})
    assert kernel.headers["Tilewise-Match"] == "processor"


@pytest.mark.parametrize("target", ["cpu:haswell,threads=1", "cpu:z80,threads=1", "cpu:?"])
def test_what_cannot_run_here_never_stands_in(client, moved, target):
    moved(target=target)
    assert get(client, match="nearest").status_code == 404


def test_another_number_of_threads_never_stands_in(client, moved, machine):
    moved()
    two = parse_target(machine.target)
    two = replace(two, threads=2).canonical
    assert get(client, match="nearest", target=two).status_code == 404


def test_the_most_alike_processor_comes_first(sessions, moved, machine):
    own = replace(machine, cpu="asked", features=BF16).named
    others = {"a": AVX512, "b": VNNI, "c": (*BF16, "avxvnni"), "d": AVX2, "e": BF16}
    targets = {c: replace(machine, cpu=c, features=some).target for c, some in others.items()}
    unknown = [f"cpu:{cpu},threads=1,features=unknown" for cpu in ("asked", "skylake-avx512")]
    moved(target=targets["a"])
    with writing(sessions) as session:
        first = session.query(models.Schedule).one()
        columns = [c.key for c in models.Schedule.__table__.columns if c.key != "id"]
        for target in (*unknown, *list(targets.values())[1:]):
            values = {name: getattr(first, name) for name in columns}
            session.add(models.Schedule(**{**values, "target": target}))
    with sessions() as session:
        found = nearest.compatible_targets(session, [KEY], own.canonical)
        of_b = nearest.compatible_targets(session, [KEY], targets["b"])
        nothing = nearest.compatible_targets(session, [KEY], unknown[0])
    # c has more than was asked for, and d registers of half the width.
    assert found == [targets["e"], targets["b"], targets["a"], unknown[0]]
    assert of_b == [targets["a"]] and nothing == []
