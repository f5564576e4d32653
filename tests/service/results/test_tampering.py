import hashlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import TuneRequest
from tilewise.service.db import models, reading, writing
from tilewise.service.errors import TamperedError
from tilewise.service.jobs import queue
from tilewise.service.results import integrity, scripts, stored

OTHER = "matmul:m=8,n=8,k=8,dtype=f32"
KEY = parse_problem(PROBLEM).key
LOOKUP = "/v1/schedules/lookup"
SCRIPT, AIR, KERNEL, RESULT = (
    f"/v1/schedules/{KEY}/script",
    f"/v1/schedules/{KEY}/script?flavor=air",
    f"/v1/schedules/{KEY}/kernel",
    f"/v1/schedules?problem={PROBLEM}",
)
ASKED = {"problem": PROBLEM, "trials": 4}

OF_THE_PROBLEM = {
    "another canonical string": "UPDATE problems SET canonical = canonical || ',bias' WHERE id = 1",
    "the canonical string of another": (
        "UPDATE problems SET canonical = (SELECT canonical FROM problems WHERE id = 2) WHERE id = 1"
    ),
    "canonical string is a blob": "UPDATE problems SET canonical = x'00ff' WHERE id = 1",
    "canonical string is not UTF-8": (
        "UPDATE problems SET canonical = CAST(x'6dff' AS TEXT) WHERE id = 1"
    ),
    "keys of two problems swapped": (
        "UPDATE problems SET key = 'x' WHERE id = 1",
        f"UPDATE problems SET key = '{KEY}' WHERE id = 2",
        f"UPDATE problems SET key = '{parse_problem(OTHER).key}' WHERE id = 1",
    ),
    "problems of two schedules swapped": (
        "UPDATE schedules SET problem_id = -problem_id",
        "UPDATE schedules SET problem_id = 3 + problem_id",
    ),
    "another cache mode": "UPDATE schedules SET cache = 'cold' WHERE id = 1",
    "another toolchain": "UPDATE toolchains SET identity = 'forged'",
}
OF_THE_SCRIPT = {
    "another text": "UPDATE scripts SET text = text || '// x' WHERE id = 1",
    "another text and its SHA-256": (
        "UPDATE scripts SET text = text || '// x' WHERE id = 1",
        "UPDATE scripts SET sha256 = sha256(text) WHERE id = 1",
    ),
    "text is a blob": "UPDATE scripts SET text = x'00' WHERE id = 1",
    "text is not UTF-8": "UPDATE scripts SET text = CAST(x'41ff' AS TEXT) WHERE id = 1",
    "another hash": "UPDATE scripts SET hash = '0123456789abcdef' WHERE id = 1",
    "other steps": "UPDATE scripts SET steps = '[]' WHERE id = 1",
    "steps are no JSON": "UPDATE scripts SET steps = '[' WHERE id = 1",
    "steps are nested without end": f"UPDATE scripts SET steps = '{'[' * 50_000}' WHERE id = 1",
    "not executed": "UPDATE script_proofs SET executed = 0 WHERE id = 1",
    "not applied": "UPDATE script_proofs SET applied = 0 WHERE id = 1",
    "far off": "UPDATE script_proofs SET max_error = 1e9 WHERE id = 1",
    "far off within a tolerance": (
        "UPDATE script_proofs SET max_error = 1e9, tolerance = 1e10 WHERE id = 1"
    ),
    "infinitely far off": (
        "UPDATE script_proofs SET max_error = 9e999, tolerance = 9e999 WHERE id = 1"
    ),
    "no error known": "UPDATE script_proofs SET max_error = NULL WHERE id = 1",
    "error is a word": "UPDATE script_proofs SET max_error = 'small' WHERE id = 1",
    "faster": "UPDATE script_proofs SET gflops = 1e6 WHERE id = 1",
    "of another MLIR": "UPDATE script_proofs SET mlir = 'mlir 99' WHERE id = 1",
    "scripts of two proofs swapped": (
        "UPDATE script_proofs SET script_id = -script_id",
        "UPDATE script_proofs SET script_id = 3 + script_id",
    ),
    "proofs of two schedules swapped": "UPDATE script_proofs SET schedule_id = 3 - schedule_id",
    "digest of another": (
        "UPDATE script_proofs SET digest = "
        "(SELECT digest FROM script_proofs p WHERE p.id <> script_proofs.id)"
    ),
    "no digest": "UPDATE script_proofs SET digest = NULL WHERE id = 1",
}
OF_THE_SCHEDULE = {
    "other steps": "UPDATE schedules SET steps = '[]' WHERE id = 1",
    "steps are no JSON": "UPDATE schedules SET steps = '[' WHERE id = 1",
    "steps are an object": "UPDATE schedules SET steps = '{}' WHERE id = 1",
    "steps are nested without end": f"UPDATE schedules SET steps = '{'[' * 50_000}' WHERE id = 1",
    "peers are no JSON": "UPDATE schedules SET peers = '{' WHERE id = 1",
    "found at no moment": "UPDATE schedules SET created_at = 'soon' WHERE id = 1",
    "steps and hash of another": (
        "UPDATE schedules SET steps = '[]', hash = substr(sha256('[]'), 1, 16) WHERE id = 1"
    ),
    "faster": "UPDATE schedules SET gflops = 1e6 WHERE id = 1",
    "faster by a bit": "UPDATE schedules SET gflops = gflops * (1 + 1e-15) WHERE id = 1",
    "speed is a word": "UPDATE schedules SET gflops = 'fast' WHERE id = 1",
    "a lower peak": "UPDATE schedules SET peak_gflops = 50 WHERE id = 1",
    "slow peers": "UPDATE schedules SET peers = '{}' WHERE id = 1",
    "other measurements": "UPDATE schedules SET measured = NULL WHERE id = 1",
    "a larger budget": "UPDATE schedules SET budget = 1000000 WHERE id = 1",
    "budget is a word": "UPDATE schedules SET budget = 'all' WHERE id = 1",
    "found by another job": "UPDATE schedules SET job_id = 2 WHERE id = 1",
    "found by a job without a number": "UPDATE schedules SET job_id = 'x' WHERE id = 1",
    "found by a job that is gone": "DELETE FROM jobs WHERE id = 1",
    "no digest": "UPDATE schedules SET digest = NULL WHERE id = 1",
}


@pytest.fixture
def stored_rows(submit, run):
    run(submit())
    run(submit(OTHER, trials=5))


def edit(url: str, statements: str | tuple[str, ...]) -> None:
    with sqlite3.connect(Path(url.removeprefix("sqlite:///"))) as connection:
        connection.create_function(
            "sha256", 1, lambda text: hashlib.sha256(text.encode()).hexdigest()
        )
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in (statements,) if isinstance(statements, str) else statements:
            assert connection.execute(statement).rowcount, statement
    connection.close()


def assert_refused(answer, caplog) -> None:
    details = answer.json()
    assert (answer.status_code, details["type"]) == (500, "urn:tilewise:tampered-row"), details
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "is not what was stored" in details["detail"]
    assert "tune the problem again" in details["detail"]
    assert "ETag" not in answer.headers
    (logged,) = [record for record in caplog.records if record.name == integrity.__name__]
    assert (logged.levelname, logged.getMessage()) == ("ERROR", details["detail"])
    caplog.clear()


def assert_is_served(client, before) -> None:
    assert client.get(SCRIPT).text == before["script"]
    result = client.get(RESULT).json()
    assert (result["best"], result["proof"]) == (before["best"], before["proof"])
    (found,) = client.post(LOOKUP, json={"problems": [PROBLEM]}).json()["schedules"]
    assert found["schedule"]["best"] == before["best"] and found["error"] is None


def served(client) -> dict:
    result = client.get(RESULT).json()
    return {"script": client.get(SCRIPT).text, "best": result["best"], "proof": result["proof"]}


def tune_again(client, run) -> None:
    answer = client.post("/v1/jobs", json=ASKED)
    if answer.status_code == 202:
        assert run(answer.json()["id"]).state == "done"
    assert client.post("/v1/jobs", json=ASKED).status_code == 200


TAMPERED = {
    **{f"problem: {name}": (how, "all") for name, how in OF_THE_PROBLEM.items()},
    **{f"script: {name}": (how, "all") for name, how in OF_THE_SCRIPT.items()},
    **{f"schedule: {name}": (how, "results") for name, how in OF_THE_SCHEDULE.items()},
}


@pytest.mark.full
@pytest.mark.parametrize("name", TAMPERED)
def test_an_edited_row_is_refused_until_a_search_replaces_it(
    client, url, run, stored_rows, caplog, name
):
    how, routes = TAMPERED[name]
    before = served(client)
    etag = client.get(SCRIPT).headers["ETag"]
    edit(url, how)
    count = sum(integrity.refused().values())
    for path in (RESULT, KERNEL):
        assert_refused(client.get(path), caplog)
    assert sum(integrity.refused().values()) == count + 2
    if routes == "all":
        assert_refused(client.get(SCRIPT), caplog)
        assert_refused(client.get(SCRIPT, headers={"If-None-Match": etag}), caplog)
    else:
        assert client.get(SCRIPT).text == before["script"], "its proof does not rest on the row"
    (found,) = client.post(LOOKUP, json={"problems": [PROBLEM]}).json()["schedules"]
    assert found["schedule"] is None
    assert found["error"]["type"] == "urn:tilewise:tampered-row"
    assert "is not what was stored" in found["error"]["detail"]

    tune_again(client, run)
    assert_is_served(client, before)


def test_a_replaced_row_is_what_was_found_however_fast_it_had_said_it_was(
    client, url, run, stored_rows
):
    edit(url, OF_THE_SCHEDULE["faster"])
    edit(url, OF_THE_SCHEDULE["a larger budget"])
    answer = client.post("/v1/jobs", json=ASKED)
    assert answer.status_code == 202
    run(answer.json()["id"])
    with_budget = client.post("/v1/jobs", json={**ASKED, "trials": 5})
    assert client.get(RESULT).json()["best"]["gflops"] == 13.0
    assert with_budget.status_code == 202, "the forged budget answers nothing"


def test_a_job_for_an_edited_problem_fails_and_says_why(client, url, sessions, submit, run):
    job_id = submit()
    edit(url, OF_THE_PROBLEM["another canonical string"])
    assert run(job_id).state == "failed"
    assert "does not have the problem's key" in client.get(f"/v1/jobs/{job_id}").json()["error"]
    with reading(sessions) as session:
        assert session.query(models.Trial).count() == 0


def test_every_value_of_a_schedule_comes_back_as_it_was(client, submit, run):
    def tune(*given, **options):
        found = fakes.tune(*given, **options)
        speed = fakes.Measurement(13, (-0.0, 1e300), 1 / 3)
        best = fakes.replace(found.best, measurement=speed, peak_gflops=100, cold="64 MiB \u00b5")
        peers = {"b": fakes.measurement(0.1), "a": fakes.measurement(1 / 7)}
        return fakes.replace(found, best=best, peers=peers)

    assert run(submit(peers=True), tuner=tune).state == "done"
    result = client.get(RESULT)
    assert result.status_code == 200 and set(result.json()["peers"]) == {"a", "b"}


@pytest.mark.full
@pytest.mark.parametrize("command", ["show", "script", "kernel"])
def test_the_command_line_refuses_in_one_line(url, stored_rows, command):
    edit(url, OF_THE_SCRIPT["another text"])
    done = subprocess.run(  # a process of its own, whose logging nobody has set up
        [sys.executable, "-m", "tilewise", command, PROBLEM, "--db", url],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "row 1 of proofs is not what was stored" in done.stderr
    assert "tune the problem again" in done.stderr


def test_what_does_not_agree_does_not_answer_a_search(url, sessions, machine, stored_rows):
    problem, request = parse_problem(PROBLEM), TuneRequest(trials=4)
    edit(url, OF_THE_SCRIPT["another text"])
    with writing(sessions) as session:
        made = queue.create_or_join(session, problem, machine.target, request, TOOLCHAIN)
        assert made.schedule is None and made.job.state == "queued"
    with reading(sessions) as session, pytest.raises(TamperedError, match="row 1 of proofs"):
        scripts.find_script(session, problem, machine.target, "cpu", TOOLCHAIN)


def test_a_proof_beyond_its_tolerance_is_none_whoever_has_sealed_it(sessions, tuned):
    with writing(sessions) as session:
        work = stored.ResultKey.of(session.query(models.Schedule).one())
        proof = session.query(models.Proof).filter_by(ok=True).one()
        assert integrity.is_proof_whole(work, proof)
        proof.max_error = 2 * proof.tolerance
        proof.digest = integrity.proof_digest(work, proof)
        assert not integrity.is_proof_whole(work, proof)
        session.rollback()
