import json
import re
from functools import cache
from types import ModuleType

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import text

from tests.service.api.answers import assert_problem, assert_refused
from tests.service.conftest import TOOLCHAIN, bearer, settings_for
from tests.service.plans.makers import PLAN
from tests.service.processes import wait_until
from tilewise.kernels.mlir.frontend.read import read_graph
from tilewise.kernels.system.toolchain import identity
from tilewise.search.networks.lowering.memory import poison_activations
from tilewise.search.networks.plan import Plan
from tilewise.service.api.routes import modules
from tilewise.service.app import create_app
from tilewise.service.db import writing
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import claims, lease, plans
from tilewise.service.jobs.plans import Made, PackOutcome

ADDRESS = "/v1/plans"
TEXT = {"content-type": "text/x-mlir"}
NOTHING = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"


def filter_of(seed: int = 1) -> np.ndarray:
    """The filter of the model, in steps of an eighth, so that its text is exact."""
    return np.random.default_rng(seed).integers(-6, 7, (3, 3, 8, 8)).astype(np.float32) / 8


def module(seed: int = 1) -> str:
    """The model as text, with the filter of a seed."""
    return _MODULE.replace("FILTER", str(filter_of(seed).tolist()))


_MODULE = """
#map = affine_map<(a, b, c, d) -> (a, b, c, d)>
func.func @main(%image: tensor<1x10x9x8xf32>) -> tensor<1x10x9x8xf32> {
  %filter = arith.constant dense<FILTER> : tensor<3x3x8x8xf32>
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<1x10x9x8xf32>
  %p = tensor.pad %image low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a0: index, %a1: index, %a2: index, %a3: index):
    tensor.yield %zero : f32
  } : tensor<1x10x9x8xf32> to tensor<1x12x11x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x10x9x8xf32>) -> tensor<1x10x9x8xf32>
  %c = linalg.conv_2d_nhwc_hwcf ins(%p, %filter : tensor<1x12x11x8xf32>, tensor<3x3x8x8xf32>)
    outs(%f : tensor<1x10x9x8xf32>) -> tensor<1x10x9x8xf32>
  %m = linalg.generic {indexing_maps = [#map, #map],
      iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%c : tensor<1x10x9x8xf32>) outs(%e : tensor<1x10x9x8xf32>) {
  ^bb0(%x: f32, %y: f32):
    %z = arith.mulf %x, %half : f32
    linalg.yield %z : f32
  } -> tensor<1x10x9x8xf32>
  %q = tensor.pad %m low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%b0: index, %b1: index, %b2: index, %b3: index):
    tensor.yield %zero : f32
  } : tensor<1x10x9x8xf32> to tensor<1x12x11x8xf32>
  %d = linalg.conv_2d_nhwc_hwcf ins(%q, %filter : tensor<1x12x11x8xf32>, tensor<3x3x8x8xf32>)
    outs(%f : tensor<1x10x9x8xf32>) -> tensor<1x10x9x8xf32>
  return %d : tensor<1x10x9x8xf32>
}
"""
MODULE = module()
PROBLEMS = ["conv2d:n=1,h=10,w=9,ci=8,co=8,kh=3,kw=3,pad=1,dtype=f32,weights=constant"]
OTHERS = [
    "conv2d:n=1,h=12,w=11,ci=8,co=8,kh=3,kw=3,dtype=f32,weights=constant",
    "conv2d:n=1,h=10,w=9,ci=8,co=8,kh=3,kw=3,pad=1,layout=nchw_fchw,dtype=f32,weights=constant",
    "conv2d:n=1,h=12,w=11,ci=8,co=8,kh=3,kw=3,layout=nchw_fchw,dtype=f32,weights=constant",
]

READ = cache(read_graph)
"""Reads each module once for all tests, since a child that loads MLIR takes seconds."""


@pytest.fixture(autouse=True)
def read_once(monkeypatch):
    monkeypatch.setattr(modules, "read_graph", READ)


def ask(client, query="?trials=3", **more):
    return client.post(f"{ADDRESS}{query}", content=MODULE, headers={**TEXT, **more})


def events(client, number, wanted, query=""):
    found: list[str] = []

    def look():
        told = client.get(f"{ADDRESS}/{number}/events{query}").text
        found[:] = re.findall("event: (.*)", told)
        return wanted in found

    wait_until(look)
    return found


def test_each_problem_in_each_layout_gets_a_job_whose_end_the_plan_waits_for(client):
    answer = ask(client, "?trials=3&seed=7&name=small.mlir")
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert answer.headers["location"] == told["links"]["self"] == f"{ADDRESS}/1"
    assert set(told["links"]) == {"self", "script", "runner", "events", "page"}
    assert [(one["problem"], one["count"]) for one in told["problems"]] == [(PROBLEMS[0], 2)]
    assert [one["problem"] for one in told["variants"]] == OTHERS
    named = [told[name] for name in ("state", "phase", "trials", "seed", "layouts", "name")]
    assert named == ["queued", "tuning", 3, 7, "all", "small.mlir"]
    assert told["plan"] is told["totals"] is told["error"] is None
    for one in (*told["problems"], *told["variants"]):
        job = client.get(f"/v1/jobs/{one['job']}").json()
        assert (job["problem"], job["state"]) == (one["problem"], "queued")
        assert job["trials"]["asked"] == 3
    assert client.get(f"{ADDRESS}/1").json() == told
    seen = []
    for one in (*told["problems"], *told["variants"]):
        client.delete(f"/v1/jobs/{one['job']}")
        now = client.get(f"{ADDRESS}/1").json()
        seen.append((now["state"], now["phase"]))
    assert set(seen[:-1]) == {("running", "tuning")} and seen[-1] == ("running", "waiting")


def test_plans_outlive_the_service_and_are_listed(client_factory):
    first = ask(client_factory()).json()
    again = client_factory()
    second = ask(again, "?trials=3&name=two").json()
    assert second["id"] == 2 and second["sha256"] == first["sha256"]
    assert [one["job"] for one in second["problems"]] == [one["job"] for one in first["problems"]]
    page = again.get(f"{ADDRESS}?limit=1").json()
    assert [one["id"] for one in page["plans"]] == [2]
    last = again.get(page["next"]).json()
    assert [one["id"] for one in last["plans"]] == [1] and last["next"] is None
    shown = {name: first[name] for name in last["plans"][0]}
    assert last["plans"][0] == shown and "problems" not in shown
    assert again.get(f"{ADDRESS}?state=done").json()["plans"] == []


def test_a_request_that_is_sent_again_names_the_same_plan_and_a_strict_one_another(client):
    key = {"Idempotency-Key": "one"}
    standard = ask(client, **key).json()
    assert ask(client, **key).json() == standard
    for query in ("?trials=4", "?trials=3&accuracy=strict"):
        assert_refused(ask(client, query, **key), "Idempotency-Key")
    strict = ask(client, "?trials=3&accuracy=strict").json()
    assert (standard["accuracy"], strict["accuracy"]) == ("standard", "strict")
    for kind in ("problems", "variants"):
        assert [one["problem"] for one in strict[kind]] == [
            f"{one['problem']},accuracy=strict" for one in standard[kind]
        ]
        jobs = [{one["job"] for one in told[kind]} for told in (standard, strict)]
        assert not jobs[0] & jobs[1]
    for one in (standard, strict):
        assert ask(client, f"?trials=3&accuracy={one['accuracy']}").json()["id"] == one["id"]
    listed = client.get(ADDRESS).json()["plans"]
    assert [one["accuracy"] for one in listed] == ["strict", "standard"]
    other = ask(client, "?trials=3&seed=7", **{"Idempotency-Key": "two"}).json()
    assert other["id"] == 3


def test_a_token_has_so_many_plans_in_flight(client_factory, make_token):
    client = client_factory(require_tokens=True, jobs_in_flight=5)
    one, other = (bearer(make_token(name, "submit")) for name in "ab")
    for number in range(5):  # their jobs are the same
        asked = ask(client, f"?trials=3&name={number}", **one)
        assert asked.status_code == 202, asked.text
    refused = ask(client, "?trials=3&name=5", **one)
    assert_problem(refused, 429, "already has 5 queued or running plans")
    assert int(refused.headers["retry-after"]) > 0
    assert ask(client, "?trials=3&name=4", **one).json()["id"] == 5, "joined"
    assert ask(client, "?trials=3&name=5", **other).status_code == 202
    tight, third = client_factory(require_tokens=True, jobs_in_flight=1), make_token("c", "submit")
    plan = ask(tight, "?trials=3&accuracy=strict", **bearer(third)).json()
    asked = {one["job"] for one in (*plan["problems"], *plan["variants"])}
    assert len(asked) > 1, "the limit holds for models, not for the problems of one"
    assert ask(tight, "?trials=3&accuracy=strict&name=6", **bearer(third)).status_code == 429
    fourth, first = bearer(make_token("d", "submit")), plan["problems"][0]["problem"]
    tight.post("/v1/jobs", json={"problem": first, "cache": "cold"}, headers=fourth)
    refused = ask(tight, "?trials=3&accuracy=strict&cache=cold", **fourth)
    assert_problem(refused, 429, "already has 1 queued or running jobs")


def test_a_plan_is_called_off_and_its_jobs_go_on(client):
    told = ask(client, **{"Idempotency-Key": "one"}).json()
    jobs = [one["job"] for one in (*told["problems"], *told["variants"])]
    for _twice in range(2):
        answer = client.delete(f"{ADDRESS}/1")
        assert answer.status_code == 200, answer.text
        shown = answer.json()
        assert (shown["state"], shown["phase"], shown["error"]) == ("cancelled", None, None)
        assert shown["finished"] and client.get(f"{ADDRESS}/1").json() == shown
    assert {client.get(f"/v1/jobs/{job}").json()["state"] for job in jobs} == {"queued"}
    assert [one["id"] for one in client.get(f"{ADDRESS}?state=cancelled").json()["plans"]] == [1]
    assert events(client, 1, "end") == ["end"]
    for what in ("script", "runner"):
        assert_problem(client.get(f"{ADDRESS}/1/{what}"), 404, "it was cancelled")
    assert ask(client, **{"Idempotency-Key": "one"}).json()["id"] == 1, "as those of jobs"
    assert ask(client).json()["id"] == 2
    assert client.delete(f"{ADDRESS}/9").status_code == 404


def test_who_may_call_off_a_plan(client_factory, make_token):
    client = client_factory(require_tokens=True)
    mine, other = (bearer(make_token(name, "submit")) for name in ("mine", "other"))
    admin = bearer(make_token("admin", "admin"))
    for name in ("one", "two"):
        ask(client, f"?trials=3&name={name}", **mine)
    for headers in (other, bearer(make_token("reader"))):
        assert_problem(client.delete(f"{ADDRESS}/1", headers=headers), 403)
    assert client.get(f"{ADDRESS}/1", headers=mine).json()["state"] == "queued"
    assert client.delete(f"{ADDRESS}/1", headers=mine).json()["state"] == "cancelled"
    assert client.delete(f"{ADDRESS}/2", headers=admin).json()["state"] == "cancelled"


def test_what_cannot_be_planned_or_found_is_refused(client):
    for query, body, field in (
        ("", "no module", "module"), ("", NOTHING, "module"), ("?trials=0", MODULE, "trials"),
        ("?layouts=some", MODULE, "layouts"), ("?cache=warm", MODULE, "cache"),
        ("?accuracy=loose", MODULE, "accuracy"), ("?target=cpu:z80", MODULE, "target"),
        ("?target=iree:host", MODULE, "target"), ("?name=", MODULE, "name"),
        ("?name=a%0Ab", MODULE, "name"),
    ):  # fmt: skip
        assert_refused(client.post(f"{ADDRESS}{query}", content=body, headers=TEXT), field)
    assert client.get(ADDRESS).json()["plans"] == []
    assert client.get("/v1/jobs").json()["jobs"] == []
    assert client.get(f"{ADDRESS}/1").status_code == 404
    assert client.get(f"{ADDRESS}/0").status_code == 422


def test_texts_and_events_of_plans_that_have_ended(client, sessions, machine, ready, plan):
    with writing(sessions) as session:
        held = claims.claim(session, me(), machine.targets, TOOLCHAIN)
        assert held is not None
        assert plans.done(session, held, Made(PLAN, PackOutcome(error="nothing packs")))
    refused = client.get(f"{ADDRESS}/{ready}/script")
    assert_problem(refused, 404, f"plan {ready} has no script: nothing packs")
    runner = client.get(f"{ADDRESS}/{ready}/runner")
    assert runner.status_code == 200 and "ab" * 32 in runner.text
    assert "tilewise/plan/1" in runner.text
    assert events(client, ready, "end") == ["part", "end"]
    assert events(client, ready, "end", "?after=0") == ["end"]
    with writing(sessions) as session:
        session.execute(text("UPDATE plans SET sha256 = name"))
    for path in ("", "/script", "/runner"):
        assert client.get(f"{ADDRESS}/{ready}{path}").status_code == 500

    failing = plan()
    with writing(sessions) as session:
        held = claims.claim(session, me(), machine.targets, TOOLCHAIN)
        assert held is not None and lease.end(session, held, state="failed", error="no layer")
    for what in ("script", "runner"):
        assert_problem(client.get(f"{ADDRESS}/{failing}/{what}"), 404, "it failed: no layer")
    shown = client.get(f"{ADDRESS}/{failing}").json()
    assert (shown["state"], shown["error"], shown["phase"]) == ("failed", "no layer", None)
    refused = client.delete(f"{ADDRESS}/{failing}")
    assert_problem(refused, 409, f"plan {failing} is failed and cannot be cancelled")


@pytest.fixture
def serving(url, machine):
    how = ("--tuner=tests.service.fakes:direct_tune", "--prover=tests.service.fakes:prove")
    parts = {"machine": machine, "toolchain": identity(), "worker_arguments": how}
    with TestClient(create_app(settings_for(url), 1, **parts)) as client:
        yield client


def convolved(image, weights):
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    _, height, width, _ = image.shape
    taps = [(i, j) for i in range(3) for j in range(3)]
    return sum(padded[:, i : i + height, j : j + width] @ weights[i, j] for i, j in taps)


@pytest.mark.full
@pytest.mark.sqlite_only
def test_a_plan_is_made_proven_and_run(serving, tmp_path):
    query = f"{ADDRESS}?trials=2&layouts=model&name=it's small.mlir"
    posted = serving.post(query, content=MODULE, headers=TEXT).json()
    links = posted["links"]
    assert_problem(serving.get(links["runner"]), 409, "once it is done")
    wait_until(lambda: serving.get(links["self"]).json()["state"] in ("done", "failed"), 120)
    told = serving.get(links["self"]).json()
    assert (told["state"], told["phase"], told["error"]) == ("done", None, None)
    assert [one["state"] for one in told["problems"]] == ["done"]
    plan = Plan.from_json(told["plan"])
    assert told["totals"] == told["plan"]["totals"] and told["totals"]["chosen_us"] > 0
    assert [node.problem for node in plan.nodes if node.problem] == PROBLEMS * 2
    assert plan.model == "it's small.mlir"
    (between,) = plan.passes
    assert (plan.nodes[between.nodes[-1]].kind, between.time_us > 0) == ("elementwise", True)

    script = serving.get(links["script"])
    assert script.status_code == 200, script.text
    assert "@__transform_main" in script.text and told["script_error"] is None
    assert (told["proof"]["packs"], told["proof"]["unpacks"]) == (1, 1)
    assert told["proof"]["max_error"] <= told["proof"]["tolerance"]

    runner = serving.get(links["runner"])
    assert runner.headers["content-type"].startswith("text/x-python")
    known = {"If-None-Match": runner.headers["etag"]}
    assert serving.get(links["runner"], headers=known).status_code == 304
    assert serving.get(f"{links['runner']}?format=exe").status_code == 422
    saved = tmp_path / "model.mlir"
    saved.write_text(MODULE)
    made = ModuleType("runner")
    exec(runner.text, vars(made))
    network = made.load(saved)
    image = np.random.default_rng(0).standard_normal((1, 10, 9, 8)).astype(np.float32)
    poison_activations(network)
    (result,) = network.run(image)
    weights = filter_of()
    expected = convolved(convolved(image, weights) * np.float32(0.5), weights)
    assert np.abs(result - expected).max() <= 1e-4 * np.abs(expected).max()
    with pytest.raises(ValueError, match="SHA-256"):
        made.load(module(seed=2).encode())

    told = events(serving, 1, "end")
    assert told.index("part") < told.index("end")
    events_text = serving.get(links["events"]).text
    end = json.loads(events_text.split("event: end\ndata: ")[1].split("\n")[0])
    assert end["state"] == "done" and "problems" not in end
