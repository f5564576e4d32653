import json
from urllib.parse import quote

import pytest

from tests.service.api.answers import assert_nothing_stored, assert_problem, assert_refused
from tests.service.conftest import OTHER, PROBLEM

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
OBJECT = {"op": "matmul", "m": 8, "n": 8, "k": 8, "dtype": "f32"}
HUGE = "matmul:m=2000000000,n=2000000000,k=8,dtype=f32"
NESTED = "[" * 100_000
TEXTS = ["\0", "\ud800", "\udfff a", "\x01\x1b[2J", "\u202e", "\u2028", "a\nb", "\U0001f600",
         "9" * 5000, "x" * 5000, "-1", "1e400", "[" * 3000, "{", "%00", "' OR 1=1 --"]  # fmt: skip
# As they are written in JSON, which Python itself would not write.
VALUES = ["true", "false", "null", "-1", "0", "0.5", "1e400", "-1e400", "NaN", "Infinity", "[]",
          "{}", "9223372036854775808", "9" * 400, "-" + "9" * 4000, "9" * 5000,
          "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900, NESTED,
          '"8"', '"\\ud800"', '"\\u0000"']  # fmt: skip


@pytest.mark.parametrize(("body", "field", "message"), [
    ({"problem": "fft:n=8,dtype=f32"}, "op", "unknown operation 'fft'"),
    ({"problem": "matmul:m=8,n=8,k=8,q=1,dtype=f32"}, "q", "unknown key 'q'"),
    ({"problem": "matmul:m=8,n=8,dtype=f32"}, "k", "k is missing"),
    ({"problem": "matmul:m=0,n=8,k=8,dtype=f32"}, "m", "out of range"),
    ({"problem": HUGE}, "problem", "this machine has"),
    ({"problem": OBJECT | {"m": "8"}}, "m", "not a whole number"),
    ({"problem": 7}, "problem", "a problem string, or its JSON object"),
    ({"target": "gpu"}, "target", "neither 'host' nor"),
    ({"target": "cpu:neoverse-v2"}, "target", "this machine is cpu:"),
    ({"trials": 0}, "trials", "out of range"), ({"trials": "many"}, "trials", "valid integer"),
    ({"seconds": -1}, "seconds", "out of range"), ({"sampler": "magic"}, "sampler", "not one of"),
    ({"sampler": "os:system"}, "sampler", "give one of surrogate"),
    ({"spread": 0}, "spread", "greater than or equal to 1"),
    ({"wait": "yes"}, "wait", "valid boolean"), ({"trails": 64}, "trails", "unknown field"),
])  # fmt: skip
def test_a_bad_field_or_key_is_named_as_it_was_written(client, sessions, body, field, message):
    assert_refused(client.post("/v1/jobs", json={"problem": OTHER, **body}), field, message)
    assert_nothing_stored(sessions)


def test_a_problem_that_no_tuning_spec_covers_is_refused(client, sessions):
    pytest.importorskip("iree.runtime", reason="without IREE's runtime the target is refused")
    problem = "conv2d:n=1,h=8,w=8,ci=8,co=8,kh=3,kw=3,dtype=f32"
    answer = client.post("/v1/jobs", json={"problem": problem, "target": "iree:host"})
    assert_refused(answer, "n", "cannot be tuned by a spec")
    assert_nothing_stored(sessions)


@pytest.mark.parametrize(("body", "field", "message"), [
    (b"", "body", "is missing"),
    (b"{", "body", "not JSON"),
    (b'{"problem": }', "body", "not JSON: Expecting value at character 12"),
    (b"[]", "body", "valid dictionary"), (b'{"problem": "\xff\xff"}', "body", "parsing the body"),
    (NESTED.encode(), "body", "parsing the body"), (b"{}", "problem", "is missing"),
    (b'{"problem": "%s", "seconds": NaN}' % OTHER.encode(), "seconds", "out of range"),
])  # fmt: skip
def test_a_malformed_body_is_refused(client, sessions, body, field, message):
    assert_refused(post(client, body), field, message)
    assert_nothing_stored(sessions)


def test_json_under_another_content_type_is_refused_by_the_headers_name(client):
    for path in ("/v1/jobs", "/v1/schedules/lookup", "/v1/suite-reports"):
        # A browser sends these for a form of any page, without asking first.
        for kind in (None, *FORMS):
            headers = {} if kind is None else {"Content-Type": kind}
            answer = client.post(path, content=json.dumps({"problem": OTHER}), headers=headers)
            details = assert_refused(answer, "Content-Type", kind or "no content type")
            assert "Content-Type: application/json" in details["detail"]


def test_a_bad_parameter_is_named_and_what_does_not_exist_is_a_problem_document(client):
    assert_refused(client.get("/v1/schedules"), "problem")
    assert_refused(client.get("/v1/schedules?problem=matmul:m=0,n=1,k=1,dtype=f32"), "m")
    for path in ("/v1/jobs/12", "/v1/jobs/12/trials", "/v2", "/v1/schedules/x/script"):
        details = assert_problem(client.get(path), 404)
        assert details["instance"] == path and "errors" not in details


def test_a_fault_of_ours_shows_no_traceback(client_factory, monkeypatch):
    def fault(*_args, **_kwargs):
        raise RuntimeError("secret")

    monkeypatch.setattr("tilewise.service.jobs.queue.list_jobs", fault)
    answer = client_factory(raises=False).get("/v1/jobs")
    assert_problem(answer, 500)
    assert "secret" not in answer.text and "Traceback" not in answer.text
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["X-Request-ID"]


def test_a_read_only_database_is_read_and_not_written(client_factory, url, tuned, submit):
    queued = submit(OTHER)
    file = url.removeprefix("sqlite:///")
    client = client_factory(f"sqlite:///file:{file}?mode=ro&uri=true")
    assert client.get("/v1/schedules", params={"problem": PROBLEM}).status_code == 200
    for answer in (
        client.post("/v1/jobs", json={"problem": OTHER + ",bias"}),
        client.delete(f"/v1/jobs/{queued}"),
        client.get("/readyz"),
    ):
        assert_problem(answer, 503, "is read-only; make the file")
        assert int(answer.headers["Retry-After"]) >= 1
    assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize(("path", "place", "within"), [
    ("/v1/jobs", lambda text: {"problem": text}, {"problem", "op"}),
    ("/v1/jobs", lambda text: {"problem": f"{text}:m=8"}, {"problem", "op"}),
    ("/v1/jobs", lambda text: {"problem": f"{OTHER},{text}=1"}, None),
    ("/v1/jobs", lambda text: {"problem": f"{OTHER},epilogue={text}"}, None),
    ("/v1/jobs", lambda text: {"problem": {"op": text}}, {"op"}),
    ("/v1/jobs", lambda text: {"problem": OBJECT | {text: 1}}, None),
    ("/v1/jobs", lambda text: {"problem": OBJECT | {"m": text}}, {"m"}),
    ("/v1/jobs", lambda text: {"problem": OTHER, "target": text}, {"target"}),
    ("/v1/jobs", lambda text: {"problem": OTHER, "target": f"cpu:a,threads={text}"},
     {"target"}),
    ("/v1/jobs", lambda text: {"problem": OTHER, "sampler": text}, {"sampler"}),
    ("/v1/jobs", lambda text: {"problem": OTHER, "trials": text}, {"trials"}),
    ("/v1/jobs", lambda text: {"problem": OTHER, "wait": text}, {"wait"}),
    ("/v1/jobs", lambda text: {"problem": OTHER, text: 1}, None),
    ("/v1/schedules/lookup", lambda text: {"problems": [OTHER, text]}, {"problems.1"}),
    ("/v1/schedules/lookup", lambda text: {"problems": [OTHER], text: 1}, None),
])  # fmt: skip
def test_a_text_in_a_body(client, sessions, path, place, within):
    for text in TEXTS:
        assert_is_refused(post(client, json.dumps(place(text)), path), text, within)
    assert_nothing_stored(sessions)


@pytest.mark.parametrize("name", ["trials", "seconds", "seed", "sampler", "peers", "cache", "wait",
                                  "target", "problem", "trails"])  # fmt: skip
def test_a_value_in_a_body(client, name):
    meant = {"seconds": {"null", "0.5"}, "seed": {"0"}, "peers": {"true", "false"},
             "wait": {"true", "false"}}.get(name, set())  # fmt: skip
    for value in VALUES:
        if value not in meant:
            assert_is_refused(post(client, f'{{"problem": "{OTHER}", "{name}": {value}}}'), value)


@pytest.mark.parametrize("name", ["m", "batch", "dtype", "bias", "epilogue", "op", "q"])
def test_a_value_in_a_problem(client, name):
    for value in VALUES:
        if (name, value) not in {("bias", "true"), ("bias", "false")}:
            problem = json.dumps(OBJECT)[:-1] + f', "{name}": {value}}}'
            assert_is_refused(post(client, f'{{"problem": {problem}}}'), value)


@pytest.mark.parametrize(("path", "fields"), [
    ("/v1/schedules?problem={}", {"problem", "op"}),
    ("/v1/trials?target=cpu:a,threads={}", {"target"}), ("/v1/trials?cursor={}", {"cursor"}),
    ("/v1/jobs?state={}", {"state"}), ("/v1/jobs?cursor={}", {"cursor"}),
    ("/v1/jobs?limit={}", {"limit"}), ("/v1/jobs/{}", {"job_id"}),
    ("/v1/schedules/a/script?flavor={}", {"flavor"}),
    ("/v1/schedules/a/script?target={}", {"target"}), ("/v1/schedules/{}/script", {"key"}),
    ("/v1/schedules/{}/kernel", {"key"}),
])  # fmt: skip
def test_a_text_in_an_address(client, path, fields):
    for raw in (b"%00", b"%ED%A0%80", b"%FF%FE", b"%01%1B", b"%E2%80%AE", b"9" * 5000, b"-1",
                b"x" * 5000, quote('{"op": "\\ud800"}').encode(), quote("{" * 3000).encode(),
                quote('{"op": "matmul", "\\ud800": 1}').encode(), b"x'--"):  # fmt: skip
        answer = client.get(path.format(raw.decode()))
        assert_is_refused(answer, raw, fields)


def test_a_problem_of_a_megabyte_is_refused(client):
    for problem in ("matmul:" + "m=1," * 262_144, {"op": "x" * 2**20},
                    {f"k{n}": 1 for n in range(50_000)}):  # fmt: skip
        answer = client.post("/v1/jobs", json={"problem": problem})
        assert_problem(answer, 422)
        assert len(answer.content) < 20_000


def post(client, body, path="/v1/jobs"):
    return client.post(path, content=body, headers={"Content-Type": "application/json"})


def assert_is_refused(answer, given, fields=None):
    """422 whose fields and messages can be printed, and do not give back all that was sent."""
    assert answer.status_code == 422, (ascii(given)[:80], answer.status_code, answer.text[:300])
    details = assert_problem(answer, 422)
    assert details["errors"] and len(answer.content) < 20_000
    for error in details["errors"]:
        assert error["field"] and error["field"].isprintable(), ascii(error["field"])
        assert error["message"].isprintable(), ascii(error["message"])
        assert len(error["field"]) < 250 and len(error["message"]) < 400, given[:80]
    if fields is not None:
        named = {error["field"] for error in details["errors"]}
        assert named <= fields, (ascii(given)[:80], named)
