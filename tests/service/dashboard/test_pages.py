import gzip
import re
from dataclasses import replace

import pytest
from sqlalchemy import select

from tests.service import fakes
from tests.service.conftest import KEY, OTHER, PROBLEM
from tests.service.dashboard import answers
from tests.service.dashboard.answers import BROWSER, HOSTILE, OWN, assert_no_markup, assert_page
from tilewise.search.records import Measurement, Winner
from tilewise.service.dashboard import assets, rendering
from tilewise.service.db import models, writing


def paths(job, schedule):
    return [
        "/", "/?order=share&contains=matmul", "/?order=ratio&page=2", "/jobs", "/jobs?state=done",
        f"/jobs/{job}", f"/jobs/{job}?order=speed&state=timed&page=1", f"/problems/{KEY}",
        f"/problems/{KEY}?schedule={schedule}", f"/compare?left={schedule}&right={schedule}",
        "/submit", "/sign-in", "/api", "/docs",
    ]  # fmt: skip


def test_pages_are_whole_keep_the_policy_and_show_what_was_measured(client, tuned, schedule_id):
    for path in paths(tuned, schedule_id):
        answer = client.get(path)
        assert answer.headers["referrer-policy"] == "same-origin"
        answers.assert_self_contained(assert_page(answer, 200))
    result = client.get("/v1/schedules", params={"problem": PROBLEM}).json()
    speed = f"{result['best']['gflops']:.1f}"
    assert_page(client.get("/"), 200, PROBLEM, speed)
    share = f"{result['best']['peak_fraction']:.1%}"
    found = client.get(f"/problems/{KEY}")
    page = assert_page(found, 200, speed, result["best"]["hash"], "micro-kernel", share)
    job = client.get(f"/jobs/{tuned}").text
    for trial in client.get(f"/v1/jobs/{tuned}/trials").json()["trials"]:
        assert f'<td class="number">{trial["number"]}</td>' in job
    link = re.search(r'href="(/v1/schedules/[^"]+/script[^"]*)"', page)
    served = client.get(link[1].replace("&amp;", "&"))
    assert served.headers["content-type"].startswith("text/x-mlir")
    assert served.text.splitlines()[0] in answers.code(page), "the script is the one that is served"


def test_an_empty_database_has_pages_and_offers_problems_that_can_be_tuned(client):
    for path in ("/", "/jobs", "/suites", "/submit", "/sign-in", "/api"):
        assert_page(client.get(path, headers=BROWSER), 200)
    page = client.get("/").text
    offered = re.findall(r'href="(/submit\?problem=[^"]+)"', page)
    assert len(offered) >= 3
    for link in offered:
        form = client.get(link).text
        (problem,) = re.findall(r'id="problem" name="problem" value="([^"]+)"', form)
        assert client.get("/submit/check", params={"problem": problem}).json()["problem"]
    assert "tilewise tune" in page and "--server http://testserver" in page


@pytest.mark.parametrize(("path", "status", "said"), [
    ("/jobs/99", 404, "there is no job 99"), ("/jobs/0", 422, "job_id"),
    ("/problems/" + "0" * 64, 404, "no problem with the key"), ("/compare?left=1", 422, "right"),
    ("/compare?left=98&right=99", 404, "there is no schedule 98"),
    ("/?order=sideways", 422, "order"), ("/?contains=" + "x" * 201, 422, "contains"),
    ("/plans/99", 404, "no plan 99"), ("/plans/0", 422, "plan_id"), ("/plans/x", 422, "plan_id"),
    ("/jobs?kind=model&before=0", 422, "before"), ("/suites/99", 404, "no "),
    ("/suites/0", 422, "number"), ("/suites/x", 422, "number"), ("/suites/1?page=0", 422, "page"),
    ("/schedules/1/kernel", 404, "no "), ("/schedules/1/assembly", 404, "no "),
])  # fmt: skip
def test_what_is_not_there_is_a_page(client, path, status, said):
    assert_page(client.get(path), status, said)


def test_nothing_that_a_client_sets_is_markup(client, tuned, schedule_id, sessions):
    with writing(sessions) as session:
        job = session.get_one(models.Job, tuned)
        job.error, job.target, job.sampler = HOSTILE, HOSTILE[:90], HOSTILE[:30]
        for trial in session.scalars(select(models.Trial)):
            trial.message, trial.failure, trial.state = HOSTILE, "crash", "failed"
            trial.origin, trial.params = HOSTILE[:30], {HOSTILE: HOSTILE}
        session.add(models.Problem(key="f" * 64, canonical=HOSTILE))
        machine = session.scalars(select(models.Machine)).one()
        machine.host, machine.cpu = HOSTILE, HOSTILE[:64]
        worker = {"targets": [HOSTILE], "toolchain": HOSTILE, "capacity": 1}
        session.add(models.Worker(owner=f"{HOSTILE}:1:1", machine_id=machine.id, **worker))
    asked = [*paths(tuned, schedule_id), "/problems/" + "f" * 64]
    asked += [f"/?contains={HOSTILE}", f"/submit?problem={HOSTILE}&target={HOSTILE}",
              f"/sign-in?next={HOSTILE}", f"/jobs/{tuned}?order={HOSTILE}",
              f"/jobs/{tuned}?state={HOSTILE}"]  # fmt: skip
    for path in asked:
        assert_no_markup(client.get(path))
    assert "&lt;script&gt;" in client.get(f"/jobs/{tuned}").text
    form = client.post("/submit", data={"problem": HOSTILE, "target": HOSTILE, "trials": HOSTILE})
    assert form.status_code == 422
    assert_no_markup(form)


@pytest.mark.full
def test_the_form_says_what_is_wrong_beside_its_field(client):
    for given, field, said in (
        ({"problem": "matmul:m=0,n=1,k=1,dtype=f32"}, "problem", "m=0"),
        ({"trials": "many"}, "trials", "not a number"),
        ({"seconds": "-1"}, "seconds", "seconds"),
        ({"target": "gpu:x"}, "target", "gpu"),
        ({"cache": "lukewarm"}, "cache", "hot"),
        ({"problem": "matmul:m=1000000,n=1000000,k=1000000,dtype=f64"}, "problem", "GiB"),
    ):
        answer = client.post("/submit", data={"problem": PROBLEM, **given}, follow_redirects=False)
        assert answer.status_code == 422
        (wrong,) = re.findall(rf'id="{field}-wrong">([^<]+)<', answer.text)
        assert said in wrong
    assert client.get("/v1/jobs").json()["jobs"] == []


def test_the_form_starts_a_search_or_leads_to_the_stored_result(client, tuned):
    asked = client.post("/submit", data={"problem": OTHER, "trials": "4"}, follow_redirects=False)
    assert (asked.status_code, asked.headers["location"]) == (303, f"/jobs/{tuned + 1}")
    page = client.get(asked.headers["location"]).text
    assert "waits for a worker" in page and "Cancel the job" in page
    gone = client.post(f"/jobs/{tuned + 1}/cancel")
    assert gone.status_code == 200 and "cancelled" in gone.text
    known = client.post("/submit", data={"problem": PROBLEM, "trials": "4"}, follow_redirects=False)
    assert (known.status_code, known.headers["location"]) == (303, f"/problems/{KEY}")
    form = re.search(r'<form method="post" action="/submit">(.*?)</form>',
                     client.get(f"/problems/{KEY}").text)  # fmt: skip
    assert form and "Tune again" in form[1]
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[1]))
    answer = client.post("/submit", data=fields, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{tuned + 2}")
    job = client.get(f"/v1/jobs/{tuned + 2}").json()
    assert (job["state"], job["trials"]["asked"], job["trials"]["timed"]) == ("queued", 4, 4)


def test_the_page_of_the_api_has_every_call_of_its_document(client):
    for page in ("/api", "/docs"):
        text = client.get(page).text
        for path, methods in client.get("/openapi.json").json()["paths"].items():
            for method in methods:
                assert f"<code>{method.upper()} {path}</code>" in text
    assert rendering.code("a `b` <c> `d") == "a <code>b</code> &lt;c&gt; `d"
    assert rendering.code("``x``, plain") == "<code>x</code>, plain"


def test_a_problem_is_checked_as_it_is_typed(client):
    typed = " matmul:n=6,m=2..4,k=8,dtype=f32", "matmul:m=0,n=6,k=8,dtype=f32"
    good, bad = (client.get("/submit/check", params={"problem": one}).json() for one in typed)
    assert good["problem"] == "matmul:m=4,n=6,k=8,dtype=f32"
    assert good["gflop"] == pytest.approx(2 * 4 * 6 * 8 / 1e9)
    assert "m=0" in bad["error"]


def test_assets_are_kept_for_ever_under_a_name_of_their_content(client):
    for name in ("style.css", "page.js", "plots.js", "themes.js", "icon.svg"):
        answer = client.get(f"/assets/{assets.version()}/{name}")
        assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-encoding"] == "gzip"
    assert client.get(f"/assets/{'0' * 16}/style.css").status_code == 404
    assert client.get(f"/assets/{assets.version()}/..%2frendering.py").status_code == 404
    bundle = client.get(f"/assets/{assets.version()}/vega.js")
    assert bundle.status_code == 200 and "vegaEmbed" in bundle.text
    assert len(gzip.compress(bundle.content)) < 1_500_000 and len(assets.bundle()) < 400_000


def test_plots_are_specifications_of_what_is_stored(client, tuned, schedule_id):
    trials = client.get(f"/v1/jobs/{tuned}/trials").json()["trials"]
    spec = client.get(f"/plots/jobs/{tuned}/convergence").json()
    assert len(spec["data"]["values"]) == len(trials)
    for path in (f"jobs/{tuned}/pace", f"jobs/{tuned}/origins", f"schedules/{schedule_id}/roofline",
                 f"problems/{KEY}/history", f"compare/{schedule_id}/{schedule_id}"):  # fmt: skip
        assert "vega-lite" in client.get(f"/plots/{path}").json()["$schema"], path
    for number, status in ((99, 404), (-1, 422)):
        assert client.get(f"/plots/schedules/{number}/roofline").status_code == status


def test_a_row_that_is_not_what_was_stored_is_refused(client, tuned, sessions):
    with writing(sessions) as session:
        session.scalars(select(models.Schedule)).one().gflops = 1e9
    assert "refused: the row is not what was stored" in client.get("/").text
    page = client.get(f"/problems/{KEY}")
    assert page.status_code == 500 and "1000000000" not in page.text


@pytest.mark.full
@pytest.mark.parametrize("damage", [
    "schedules SET peers = 'no JSON'", "schedules SET gflops = 'fast'",
    'schedules SET peers = \'{"openblas": {"gflops": "fast"}, "iree": 3}\'',
    "schedules SET peak_gflops = 0", "schedules SET created_at = 'yesterday'",
    "schedules SET steps = '[]'", "trials SET low = 1e999 WHERE number = 0",
    "trials SET gflops = 'fast', params = 'none' WHERE number = 0",
    "jobs SET created_at = 'yesterday'", "machines SET caches = 'none'",
    "problems SET canonical = 'nonsense'",
])  # fmt: skip
def test_a_damaged_row_costs_no_more_than_itself(client, tuned, schedule_id, sessions, damage):
    with writing(sessions) as session:
        session.connection().exec_driver_sql("PRAGMA ignore_check_constraints = ON")
        session.connection().exec_driver_sql(f"UPDATE {damage}")
    faults = "the service failed"
    for path in ("/", "/jobs", f"/plots/jobs/{tuned}/convergence", f"/plots/jobs/{tuned}/pace"):
        answer = client.get(path)
        assert faults not in answer.text, path
        assert answer.status_code == 200 or "jobs SET" in damage, path
    for path in (f"/jobs/{tuned}", f"/problems/{KEY}", f"/compare?left={schedule_id}&right=1",
                 f"/plots/schedules/{schedule_id}/roofline"):  # fmt: skip
        assert faults not in client.get(path).text, path


def test_a_browser_signs_in_and_out_and_is_led_nowhere_else(client_factory, make_token):
    client, token = client_factory(require_tokens=True), make_token()
    asked = client.get("/jobs?state=done", headers=BROWSER, follow_redirects=False)
    assert asked.status_code == 303
    assert asked.headers["location"] == "/sign-in?next=%2Fjobs%3Fstate%3Ddone"
    assert client.get("/v1/jobs", headers=BROWSER).status_code == 401
    assert client.get("/jobs").status_code == 401  # a program
    assert client.get(f"/assets/{assets.version()}/style.css").status_code == 200

    wrong = client.post("/sign-in", data={"token": "tw_no"}, headers=OWN)
    assert_page(wrong, 401, "unknown, expired or revoked")
    sent = {"token": token, "next": "/jobs?state=done"}
    right = client.post("/sign-in", data=sent, headers=OWN, follow_redirects=False)
    assert (right.status_code, right.headers["location"]) == (303, "/jobs?state=done")
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie

    assert client.get("/jobs", headers=BROWSER).status_code == 200
    assert client.get("/v1/jobs").status_code == 200
    assert "Sign out" in client.get("/").text and 'href="/submit"' not in client.get("/").text
    client.post("/sign-out", headers=OWN)
    assert client.get("/v1/jobs").status_code == 401
    for place in ("//x.example", "http://x.example/", "/\\x.example", "javascript:f()", "\n/", ""):
        sent = {"token": token, "next": place}
        answer = client.post("/sign-in", data=sent, headers=OWN, follow_redirects=False)
        assert answer.headers["location"] == "/", place


def test_a_form_of_another_page_gets_nowhere(client_factory, make_token):
    client = client_factory(require_tokens=True)
    client.cookies = {"tilewise_token": make_token(scope="submit")}

    def submit(**sent):
        form = {"problem": PROBLEM}
        return client.post("/submit", data=form, headers=sent, follow_redirects=False).status_code

    assert submit() == 403, "it says not where it is from"
    for origin in ("http://elsewhere", "null"):
        assert submit(Origin=origin) == 403
    for site in ("cross-site", "same-site"):
        assert submit(**{"Sec-Fetch-Site": site}) == 403
    assert client.get("/v1/jobs").json()["jobs"] == []
    assert submit(Origin="http://testserver") == submit(**{"Sec-Fetch-Site": "same-origin"}) == 303


def test_a_noisy_result_and_its_history_are_shown_and_compared(client, submit, run):
    noisy = Measurement(77.8, (41.7, 176.7), 12.0)

    def badly(*given, **hooks):
        return replace(fakes.tune(*given, **hooks), best=Winner(fakes.schedule(), noisy, 100.0))

    first = submit()
    run(first, tuner=badly)
    for path in ("/", f"/problems/{KEY}", f"/jobs/{first}"):
        assert ">noisy</span>" in client.get(path).text, path
    second = submit(trials=4)
    run(second)
    page = client.get(f"/problems/{KEY}").text
    assert ">earlier best</span>" in page and "77.8" in page and "/history" in page
    third = client.post("/v1/jobs", json={"problem": PROBLEM, "again": True}).json()["id"]
    run(third, tuner=badly)
    assert "measured again and not kept" in client.get(f"/jobs/{third}").text
    assert ">never best</span>" in client.get(f"/problems/{KEY}").text
    sides = client.get("/compare", params={"left": "past-1", "right": "1"})
    assert sides.status_code == 200 and "77.8" in sides.text and "13.0" in sides.text
    assert "First: no script is stored for it." in sides.text
    assert client.get("/plots/compare/past-1/1").status_code == 200
    assert client.get("/compare", params={"left": "past-9", "right": "1"}).status_code == 404
    assert client.get("/plots/compare/past-x/1").status_code == 404
