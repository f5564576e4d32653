import json
from urllib.parse import quote

import pytest

from tests.service.api.test_http_errors import (
    NESTED,
    SQUARE,
    assert_nothing_stored,
    assert_problem,
)

LONGEST_MESSAGE = 400
OBJECT = {"op": "matmul", "m": 8, "n": 8, "k": 8, "dtype": "f32"}
TEXTS = ["\0", "\ud800", "\udfff a", "\x01\x1b[2J", "\u202e", "\u2028", "a\nb", "\U0001f600",
         "9" * 5000, "x" * 5000, "-1", "1e400", "[" * 3000, "{", "%00", "' OR 1=1 --"]  # fmt: skip
# As they are written in JSON, which Python itself would not write.
VALUES = ["true", "false", "null", "-1", "0", "0.5", "1e400", "-1e400", "NaN", "Infinity", "[]",
          "{}", "9223372036854775808", "9" * 400, "-" + "9" * 4000, "9" * 5000,
          "[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900, NESTED,
          '"8"', '"\\ud800"', '"\\u0000"']  # fmt: skip


def lookup(body):
    return {"problems": [SQUARE], **body}


@pytest.mark.parametrize(
    ("path", "place", "within"),
    [
        ("/v1/jobs", lambda text: {"problem": text}, {"problem", "op"}),
        ("/v1/jobs", lambda text: {"problem": f"{text}:m=8"}, {"problem", "op"}),
        ("/v1/jobs", lambda text: {"problem": f"{SQUARE},{text}=1"}, None),
        ("/v1/jobs", lambda text: {"problem": f"{SQUARE},epilogue={text}"}, None),
        ("/v1/jobs", lambda text: {"problem": {"op": text}}, {"op"}),
        ("/v1/jobs", lambda text: {"problem": OBJECT | {text: 1}}, None),
        ("/v1/jobs", lambda text: {"problem": OBJECT | {"m": text}}, {"m"}),
        ("/v1/jobs", lambda text: {"problem": SQUARE, "target": text}, {"target"}),
        ("/v1/jobs", lambda text: {"problem": SQUARE, "target": f"cpu:a,threads={text}"},
         {"target"}),
        ("/v1/jobs", lambda text: {"problem": SQUARE, "sampler": text}, {"sampler"}),
        ("/v1/jobs", lambda text: {"problem": SQUARE, "trials": text}, {"trials"}),
        ("/v1/jobs", lambda text: {"problem": SQUARE, "wait": text}, {"wait"}),
        ("/v1/jobs", lambda text: {"problem": SQUARE, text: 1}, None),
        ("/v1/schedules/lookup", lambda text: {"problems": [SQUARE, text]}, {"problems.1"}),
        ("/v1/schedules/lookup", lambda text: lookup({text: 1}), None),
    ],
)  # fmt: skip
def test_a_text_in_a_body(client, sessions, path, place, within):
    for text in TEXTS:
        content = json.dumps(place(text)).encode()
        answer = client.post(path, content=content, headers={"Content-Type": "application/json"})
        assert_is_refused(answer, text, within)
    assert_nothing_stored(sessions)


@pytest.mark.parametrize("name", ["trials", "seconds", "seed", "sampler", "peers", "cache", "wait",
                                  "target", "problem", "trails"])  # fmt: skip
def test_a_value_in_a_body(client, name):
    meant = {"seconds": {"null", "0.5"}, "seed": {"0"}, "peers": {"true", "false"},
             "wait": {"true", "false"}}.get(name, set())  # fmt: skip
    for value in VALUES:
        if value not in meant:
            assert_is_refused(post(client, f'{{"problem": "{SQUARE}", "{name}": {value}}}'), value)


@pytest.mark.parametrize("name", ["m", "batch", "dtype", "bias", "epilogue", "op", "q"])
def test_a_value_in_a_problem(client, name):
    for value in VALUES:
        if (name, value) not in {("bias", "true"), ("bias", "false")}:
            problem = json.dumps(OBJECT)[:-1] + f', "{name}": {value}}}'
            assert_is_refused(post(client, f'{{"problem": {problem}}}'), value)


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/schedules?problem={}", {"problem", "op"}),
        ("/v1/trials?target=cpu:a,threads={}", {"target"}),
        ("/v1/trials?cursor={}", {"cursor"}),
        ("/v1/jobs?state={}", {"state"}),
        ("/v1/jobs?cursor={}", {"cursor"}),
        ("/v1/jobs?limit={}", {"limit"}),
        ("/v1/jobs/{}", {"job_id"}),
        ("/v1/schedules/a/script?flavor={}", {"flavor"}),
        ("/v1/schedules/a/script?target={}", {"target"}),
        ("/v1/schedules/{}/script", {"key"}),
        ("/v1/schedules/{}/kernel", {"key"}),
    ],
)
def test_a_text_in_an_address(client, path, fields):
    for raw in (b"%00", b"%ED%A0%80", b"%FF%FE", b"%01%1B", b"%E2%80%AE", b"9" * 5000, b"-1",
                b"x" * 5000, quote('{"op": "\\ud800"}').encode(), quote("{" * 3000).encode(),
                quote('{"op": "matmul", "\\ud800": 1}').encode(), b"x'--"):  # fmt: skip
        answer = client.get(path.format(raw.decode()))
        assert_is_refused(answer, raw, fields)


def post(client, body):
    headers = {"Content-Type": "application/json"}
    return client.post("/v1/jobs", content=body.encode(), headers=headers)


def assert_is_refused(answer, given, fields=None):
    """422 whose fields and messages can be printed, and do not give back all that was sent."""
    assert answer.status_code == 422, (ascii(given)[:80], answer.status_code, answer.text[:300])
    details = assert_problem(answer, 422)
    assert details["errors"]
    for error in details["errors"]:
        assert error["field"] and error["field"].isprintable(), ascii(error["field"])
        assert error["message"].isprintable(), ascii(error["message"])
        assert len(error["field"]) < 250 and len(error["message"]) < LONGEST_MESSAGE, given[:80]
    if fields is not None:
        named = {error["field"] for error in details["errors"]}
        assert named <= fields, (ascii(given)[:80], named)
