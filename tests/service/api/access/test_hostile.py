import logging

import pytest

from tests.service.api.access.asking import SCRIPT, bearer, refused


@pytest.mark.parametrize("path", ["/v1/jobs", "/nothing", "/v1/jobs/x", SCRIPT, "/healthz"])
def test_every_answer_is_no_page(client, tuned, path):
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; frame-ancestors")
    assert headers["X-Frame-Options"] == "DENY" and headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == ("no-cache" if path == SCRIPT else "no-store")
    assert len(headers.get_list("Content-Security-Policy")) == 1


def test_tokens_stand_in_no_log(guarded, make_token, caplog, capfd):
    caplog.set_level(logging.DEBUG)
    client, token = guarded(), make_token()
    client.get("/v1/jobs", headers=bearer(token))
    client.get(f"/v1/jobs?token={token}x", headers=bearer(token + "x"))
    said = caplog.text + "".join(capfd.readouterr())
    assert token[3:] not in "".join(line for line in said.splitlines() if "GET http" not in line)


def test_a_problem_of_a_megabyte_is_refused(client):
    for body in ({"problem": "matmul:" + "m=1," * 262_144}, {"problem": {"op": "x" * 2**20}},
                 {"problem": {f"k{n}": 1 for n in range(50_000)}}):  # fmt: skip
        answer = client.post("/v1/jobs", json=body)
        assert refused(answer, 422) and len(answer.content) < 20_000
