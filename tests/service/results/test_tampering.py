import hashlib
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.cases import some
from tests.service import fakes
from tests.service.api.answers import assert_problem
from tests.service.conftest import KEY, OTHER, PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import TuneRequest
from tilewise.service.db import models, reading, writing
from tilewise.service.errors import TamperedError
from tilewise.service.jobs import queue
from tilewise.service.results import integrity, scripts, stored

LOOKUP = "/v1/schedules/lookup"
SCRIPT, KERNEL = f"/v1/schedules/{KEY}/script", f"/v1/schedules/{KEY}/kernel"
RESULT = f"/v1/schedules?problem={PROBLEM}"
ASKED = {"problem": PROBLEM, "trials": 4}

# Each statement is an UPDATE; where it names no row, it changes the first.
TAMPERED = {
    "problem: another canonical string": "problems SET canonical = canonical || ',bias'",
    "problem: the canonical string of another": f"problems SET canonical = '{OTHER}'",
    "problem: canonical string is a blob": "problems SET canonical = x'00ff'",
    "problem: canonical string is not UTF-8": "problems SET canonical = CAST(x'6dff' AS TEXT)",
    "problem: keys of two problems swapped": (
        "problems SET key = 'x'", f"problems SET key = '{KEY}' WHERE id = 2",
        f"problems SET key = '{parse_problem(OTHER).key}'"),
    "problem: problems of two schedules swapped": (
        "schedules SET problem_id = -problem_id WHERE true",
        "schedules SET problem_id = 3 + problem_id WHERE true"),
    "problem: another cache mode": "schedules SET cache = 'cold'",
    "problem: another toolchain": "toolchains SET identity = 'forged'",
    "script: another text": "scripts SET text = text || '// x'",
    "script: another text and its SHA-256": (
        "scripts SET text = text || '// x'", "scripts SET sha256 = sha256(text)"),
    "script: text is a blob": "scripts SET text = x'00'",
    "script: text is not UTF-8": "scripts SET text = CAST(x'41ff' AS TEXT)",
    "script: another hash": "scripts SET hash = '0123456789abcdef'",
    "script: other steps": "scripts SET steps = '[]'",
    "script: steps are no JSON": "scripts SET steps = '['",
    "script: steps are nested without end": f"scripts SET steps = '{'[' * 50_000}'",
    "script: not executed": "script_proofs SET executed = 0",
    "script: not applied": "script_proofs SET applied = 0",
    "script: far off": "script_proofs SET max_error = 1e9",
    "script: far off within a tolerance": "script_proofs SET max_error = 1e9, tolerance = 1e10",
    "script: infinitely far off": "script_proofs SET max_error = 9e999, tolerance = 9e999",
    "script: no error known": "script_proofs SET max_error = NULL",
    "script: error is a word": "script_proofs SET max_error = 'small'",
    "script: faster": "script_proofs SET gflops = 1e6",
    "script: of another MLIR": "script_proofs SET mlir = 'mlir 99'",
    "script: scripts of two proofs swapped": (
        "script_proofs SET script_id = -script_id WHERE true",
        "script_proofs SET script_id = 3 + script_id WHERE true"),
    "script: proofs swapped": "script_proofs SET schedule_id = 3 - schedule_id WHERE true",
    "script: digest of another":
        "script_proofs SET digest = (SELECT digest FROM script_proofs p WHERE p.id = 2)",
    "script: no digest": "script_proofs SET digest = NULL",
    "schedule: other steps": "schedules SET steps = '[]'",
    "schedule: steps are no JSON": "schedules SET steps = '['",
    "schedule: steps are an object": "schedules SET steps = '{}'",
    "schedule: steps are nested without end": f"schedules SET steps = '{'[' * 50_000}'",
    "schedule: peers are no JSON": "schedules SET peers = '{'",
    "schedule: found at no moment": "schedules SET created_at = 'soon'",
    "schedule: other steps, hash": "schedules SET steps = '[]', hash = substr(sha256('[]'), 1, 16)",
    "schedule: faster": "schedules SET gflops = 1e6",
    "schedule: faster by a bit": "schedules SET gflops = gflops * (1 + 1e-15)",
    "schedule: speed is a word": "schedules SET gflops = 'fast'",
    "schedule: a lower peak": "schedules SET peak_gflops = 50",
    "schedule: slow peers": "schedules SET peers = '{}'",
    "schedule: other measurements": "schedules SET measured = NULL",
    "schedule: a larger budget": "schedules SET budget = 1000000",
    "schedule: budget is a word": "schedules SET budget = 'all'",
    "schedule: found by another job": "schedules SET job_id = 2",
    "schedule: found by a job without a number": "schedules SET job_id = 'x'",
    "schedule: found by a job that is gone": "schedules SET job_id = 99",
    "schedule: no digest": "schedules SET digest = NULL",
}  # fmt: skip


@pytest.fixture
def stored_rows(tuned, submit, run):
    run(submit(OTHER, trials=5))


def edit(url, statements):
    """Edit rows of an SQLite database as only somebody else would."""
    with closing(sqlite3.connect(Path(url.removeprefix("sqlite:///")))) as connection, connection:
        connection.create_function("sha256", 1, lambda it: hashlib.sha256(it.encode()).hexdigest())
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for one in (statements,) if isinstance(statements, str) else statements:
            statement = f"UPDATE {one}" if " WHERE " in one else f"UPDATE {one} WHERE id = 1"
            assert connection.execute(statement).rowcount, statement


def assert_is_tampered(answer, caplog):
    details = assert_problem(answer, 500, "is not what was stored")
    assert details["type"] == "urn:tilewise:tampered-row"
    assert "tune the problem again" in details["detail"]
    assert "ETag" not in answer.headers
    (logged,) = [record for record in caplog.records if record.name == integrity.__name__]
    assert (logged.levelname, logged.getMessage()) == ("ERROR", details["detail"])
    caplog.clear()


def served(client):
    result = client.get(RESULT).json()
    (found,) = client.post(LOOKUP, json={"problems": [PROBLEM]}).json()["schedules"]
    assert found["schedule"]["best"] == result["best"] and found["error"] is None
    return {"script": client.get(SCRIPT).text, "best": result["best"], "proof": result["proof"]}


@pytest.mark.parametrize("name", some(TAMPERED, all_of=2))
def test_an_edited_row_is_refused_until_tuned_again(client, url, run, stored_rows, caplog, name):
    before = served(client)
    etag = client.get(SCRIPT).headers["ETag"]
    edit(url, TAMPERED[name])
    count = sum(integrity.refused().values())
    for path in (RESULT, KERNEL):
        assert_is_tampered(client.get(path), caplog)
    assert sum(integrity.refused().values()) == count + 2
    if not name.startswith("schedule: "):
        assert_is_tampered(client.get(SCRIPT), caplog)
        assert_is_tampered(client.get(SCRIPT, headers={"If-None-Match": etag}), caplog)
    else:
        assert client.get(SCRIPT).text == before["script"], "its proof does not rest on the row"
    (found,) = client.post(LOOKUP, json={"problems": [PROBLEM]}).json()["schedules"]
    assert found["schedule"] is None
    assert found["error"]["type"] == "urn:tilewise:tampered-row"
    assert "is not what was stored" in found["error"]["detail"]

    answer = client.post("/v1/jobs", json=ASKED)
    if answer.status_code == 202:
        assert run(answer.json()["id"]).state == "done"
    assert client.post("/v1/jobs", json=ASKED).status_code == 200
    assert served(client) == before


def test_a_replaced_row_is_what_was_found_however_fast_it_had_said_it_was(
    client, url, run, stored_rows
):
    edit(url, TAMPERED["schedule: faster"])
    edit(url, TAMPERED["schedule: a larger budget"])
    answer = client.post("/v1/jobs", json=ASKED)
    assert answer.status_code == 202
    run(answer.json()["id"])
    with_budget = client.post("/v1/jobs", json={**ASKED, "trials": 5})
    assert client.get(RESULT).json()["best"]["gflops"] == 13.0
    assert with_budget.status_code == 202, "the forged budget answers nothing"


def test_a_job_for_an_edited_problem_fails_and_says_why(client, url, sessions, submit, run):
    job_id = submit()
    edit(url, TAMPERED["problem: another canonical string"])
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
    edit(url, TAMPERED["script: another text"])
    done = subprocess.run(  # a process of its own, whose logging nobody has set up
        [sys.executable, "-m", "tilewise", command, PROBLEM, "--db", url],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert "row 1 of proofs is not what was stored" in done.stderr
    assert "tune the problem again" in done.stderr


def test_what_does_not_agree_does_not_answer_a_search(url, sessions, machine, stored_rows):
    problem, request = parse_problem(PROBLEM), TuneRequest(trials=4)
    edit(url, TAMPERED["script: another text"])
    with writing(sessions) as session:
        made = queue.create_or_join(session, problem, machine.target, request, TOOLCHAIN)
        assert made.stored is None and made.job.state == "queued"
    with reading(sessions) as session, pytest.raises(TamperedError, match="row 1 of proofs"):
        scripts.find_script(session, problem, stored.Lookup(machine.target, TOOLCHAIN))


def test_a_proof_beyond_its_tolerance_is_none_whoever_has_sealed_it(sessions, tuned):
    with writing(sessions) as session:
        work = stored.ResultKey.of(session.query(models.Schedule).one())
        proof = session.query(models.Proof).filter_by(ok=True).one()
        assert integrity.is_proof_whole(work, proof)
        proof.max_error = 2 * proof.tolerance
        proof.digest = integrity.proof_digest(work, proof)
        assert not integrity.is_proof_whole(work, proof)
        session.rollback()
