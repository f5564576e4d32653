import html
import re
from dataclasses import replace

from tests.service.conftest import OTHER, PROBLEM
from tests.service.dashboard import answers
from tests.service.dashboard.answers import HOSTILE, OWN, assert_no_markup, words
from tests.service.dashboard.planned import CONV, block, other, store_plan, tensor, use
from tilewise.search.networks.plan import PlannedPass
from tilewise.service.db import models, writing


def test_a_finished_plan_has_its_times_and_its_nodes(client, sessions):
    number = store_plan(sessions, block())
    page = answers.assert_page(client.get(f"/plans/{number}"), 200)
    answers.assert_self_contained(page)
    said = words(page)
    assert "planned 100.0 us" in said and "all as the model has it 120.0 us 1.200x" in said
    assert "each layer on its own 105.0 us 1.050x" in said
    assert "exact: nothing that was offered is faster" in said
    assert "copies 3, 10.0 us in all" in said and "planned around 1 of 4 nodes" in said
    assert "packs of activations left: 0, unpacks: 1, moving data: 0" in said
    rows = [words(row) for row in page.split("<tbody>")[1].split("</tbody>")[0].split("<tr>")[1:]]
    assert len(rows) == 4 + 3
    assert rows[0].startswith("0 linalg.softmax 1x8x10x10xf32 @main 9:3 planned around: is no")
    assert rows[1] == ("copy to axes 2,3,1 1x8x10x10xf32 plain axes 2,3,1 4.0 us 4.0%")
    assert rows[4].endswith("F4 pad, bias, relu axes 2,3,1 halo 1 axes 2,3,1 50.0 us 50.0%")
    assert "plan.js" not in page


def test_the_last_node_of_a_pass_has_its_time(client, sessions):
    nodes = (other((use(0),), use(1)), other((use(1),), use(2)))
    tensors = (tensor(given=True), tensor(), tensor(result=True))
    passes = (PlannedPass((0, 1), "softmax, softmax", 50.0),)
    plan = replace(block(), nodes=nodes, tensors=tensors, conversions=(), passes=passes)
    page = words(client.get(f"/plans/{store_plan(sessions, plan)}").text)
    assert "@main 9:3 pass plain plain in 1 1 linalg.softmax" in page
    assert "@main 9:3 pass softmax, softmax plain plain 50.0 us 50.0%" in page


def test_a_plan_whose_problems_are_tuned_shows_how_far_they_are(client, sessions, submit):
    asked = [PROBLEM, OTHER, CONV]
    jobs = [submit(problem) for problem in asked]
    own = [{"problem": asked[0], "count": 2, "where": ["@main 1:1"], "job": jobs[0]}]
    others = [{"problem": one, "job": job} for one, job in zip(asked[1:], jobs[1:], strict=True)]
    queued = {"state": "queued", "finished_at": None}
    number = store_plan(sessions, None, **queued, problems=own, variants=others)
    page = client.get(f"/plans/{number}").text
    assert "plan.js" in page and 'data-state="queued"' in page and "<svg" not in page
    assert 'max="3" value="0"' in page and "phase tuning" in words(page)
    client.delete(f"/v1/jobs/{jobs[0]}")
    page = client.get(f"/plans/{number}").text
    assert 'max="3" value="1"' in page and 'data-state="running"' in page
    assert "Its jobs go on" in page
    for job in jobs:
        assert f'href="/jobs/{job}"' in page
    assert "1 of 3 problems have ended." in words(page)
    assert f"{PROBLEM} 2 cancelled {jobs[0]}" in words(page)
    assert f"{CONV} offered queued {jobs[2]}" in words(page)
    listed = words(client.get("/plans").text)
    assert "model.mlir" in listed and "running tuning" in listed


def test_a_plan_is_called_off_on_its_page_which_says_how_it_ended(client, sessions):
    going = store_plan(sessions, None, state="queued", finished_at=None)
    ended = store_plan(sessions, block())
    action = f'action="/plans/{going}/cancel"'
    page = client.get(f"/plans/{going}").text
    assert action in page and "Its jobs go on" not in page, "there are none"
    assert "/cancel" not in client.get(f"/plans/{ended}").text
    sent = client.post(f"/plans/{going}/cancel", headers=OWN, follow_redirects=False)
    assert (sent.status_code, sent.headers["location"]) == (303, f"/plans/{going}")
    page = client.get(f"/plans/{going}").text
    assert 'data-state="cancelled"' in page and "/cancel" not in page and "plan.js" not in page
    failed = store_plan(sessions, None, state="failed", error="the worker died three times")
    page = client.get(f"/plans/{failed}").text
    assert '<p class="wrong" role="alert">the worker died three times</p>' in page
    assert "plan.js" not in page and "Before and after" not in page
    refused = client.post(f"/plans/{ended}/cancel", headers=OWN)
    assert refused.status_code == 409 and "cannot be cancelled" in refused.text


def test_plans_are_listed_newest_first_in_pages(client, sessions):
    assert "No model was planned" in client.get("/plans").text
    for _ in range(51):
        store_plan(sessions, block())
    first = client.get("/plans").text
    assert re.findall(r'href="/plans/(\d+)"', first) == [str(i) for i in range(51, 1, -1)]
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following and "100.0 us 1.200x" in words(first)
    last = client.get(html.unescape(following[1])).text
    assert re.findall(r'href="/plans/(\d+)"', last) == ["1"] and 'rel="next"' not in last


def hostile():
    plan = block(HOSTILE)
    first, second = plan.nodes[:2]
    assert second.found is not None and second.schedule is not None
    found = replace(second.found, op=HOSTILE, where=HOSTILE, fused=(HOSTILE,))
    timed = replace(second.schedule, algorithm=HOSTILE)
    second = replace(second, op=HOSTILE, where=HOSTILE, found=found, schedule=timed)
    first = replace(first, op=HOSTILE, where=HOSTILE, reason=HOSTILE)
    tensors = tuple(replace(one, dtype=HOSTILE) for one in plan.tensors)
    return replace(plan, nodes=(first, second, *plan.nodes[2:]), tensors=tensors)


def test_nothing_of_a_model_is_markup(client, sessions):
    number = store_plan(sessions, hostile(), script_error=HOSTILE, proof=None, phase=HOSTILE[:30])
    failed = store_plan(sessions, None, name=HOSTILE, state="failed", error=HOSTILE)
    for path in (f"/plans/{number}", f"/plans/{failed}", "/plans"):
        answer = client.get(path)
        assert_no_markup(answer)
        assert "&lt;script&gt;" in answer.text, path


DAMAGES = [
    "plans SET plan = 'no JSON' WHERE id = :id",
    'plans SET plan = \'{"schema": "tilewise/plan/0"}\' WHERE id = :id',
    "plans SET plan = replace(plan, '\"tensor\": 1', '\"tensor\": 77') WHERE id = :id",
    'plans SET plan = replace(plan, \'"time_us": 30.0\', \'"time_us": "long"\') WHERE id = :id',
    "plans SET problems = '3' WHERE id = :id",
    "jobs SET created_at = 'yesterday' WHERE id = (SELECT job_id FROM plans WHERE id = :id)",
]


def test_a_damaged_row_costs_no_more_than_itself(client, sessions):
    running = {"state": "running", "phase": "proving", "owner": "host/1/1"}
    numbers = [store_plan(sessions, block(f"{i}.mlir"), **running) for i in range(len(DAMAGES))]
    sound = store_plan(sessions, block())
    for number, damage in zip(numbers, DAMAGES, strict=True):
        with writing(sessions) as session:
            session.connection().exec_driver_sql(f"UPDATE {damage}", {"id": number})
        answer = client.get(f"/plans/{number}")
        assert answer.status_code == 500 and "damaged" in answer.text, damage
        assert "the service failed" not in answer.text, damage
    assert client.get(f"/plans/{sound}").status_code == 200
    with writing(sessions) as session:
        made = session.get(models.Plan, sound)
        assert made is not None and made.plan is not None
        made.plan = {**made.plan, "model": "another.mlir"}
    refused = client.get(f"/plans/{sound}")
    assert refused.status_code == 500 and "another.mlir" not in refused.text
    listed = client.get("/plans")
    assert listed.status_code == 200 and f'href="/plans/{sound}"' in listed.text
    assert "rows of the database are damaged, and left out" in listed.text
