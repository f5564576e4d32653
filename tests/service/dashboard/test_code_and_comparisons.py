import html
import re

from sqlalchemy import select

from tests.service.api.answers import once_made
from tests.service.conftest import KEY
from tests.service.dashboard.answers import code
from tilewise.kernels.schedule import Register
from tilewise.service.archive.fields import digest_of
from tilewise.service.dashboard.fleet import FleetQuery
from tilewise.service.dashboard.rendering import environment
from tilewise.service.dashboard.routes.pages import EXAMPLES
from tilewise.service.db import models, writing
from tilewise.service.results.integrity import result_digest
from tilewise.service.results.stored import ResultKey


def test_kernel_script_and_inner_loop_can_be_read_also_side_by_side(client, schedule_id):
    kernel = once_made(lambda: client.get(f"/schedules/{schedule_id}/kernel"))
    served = client.get(f"/v1/schedules/{KEY}/kernel").text
    assert kernel.status_code == 200 and served.splitlines()[0].strip('"') in code(kernel.text)
    loop = once_made(lambda: client.get(f"/schedules/{schedule_id}/assembly")).text
    assert "multiply-adds, fma" in loop and "spills: none" in loop
    assert loop.index("bound:") < loop.index("inner loop, "), "the loop is long, so it is below"
    assert re.search(r'<span class="c-\w+">def</span>', kernel.text), "a kernel is highlighted"
    assert client.get("/schedules/99/assembly").status_code == 404
    page = client.get(f"/schedules/{schedule_id}/air")
    served = client.get(f"/v1/schedules/{KEY}/script", params={"flavor": "air"})
    assert page.status_code == served.status_code == 200
    assert served.text.strip() in code(page.text)
    link = re.search(r'download="[^"]+-air.mlir" href="([^"]+)"', page.text)
    assert link and client.get(html.unescape(link[1])).text == served.text
    path = f"/compare?left={schedule_id}&right={schedule_id}"
    scripts = client.get(path).text
    line = client.get(f"/v1/schedules/{KEY}/script").text.splitlines()[0]
    assert html.unescape(scripts).count(f"<code>{line}</code>") == 2
    loops = once_made(lambda: client.get(f"{path}&code=assembly"))
    assert loops.status_code == 200 and loops.text.count("<code>bound: ") == 2
    assert 'code=assembly#code" aria-current="page"' in loops.text


def test_downloads_are_of_the_schedule_that_is_shown(client, schedule_id, submit, run, sessions):
    run(submit(cache="cold"))
    run(submit(toolchain="an earlier one"))
    for number, cache, count in ((1, "hot", 3), (2, "cold", 3), (3, "hot", 1)):  # flavor air of all
        page = client.get(f"/problems/{KEY}?schedule={number}").text
        links = re.findall(r'href="(/v1/schedules/[^"]+)"', page)
        assert len([one for one in links if f"cache={cache}" in one]) == count == len(links)
        assert (f'?schedule={schedule_id}">schedule' in page) == (number == 3)
        kernel = once_made(lambda page=f"/schedules/{number}/kernel": client.get(page)).text
        assert f"/problems/{KEY}?schedule={number}" in kernel
        assert ("/v1/schedules/" in kernel) == (number != 3)
    with writing(sessions) as session:
        session.query(models.Proof).filter_by(schedule_id=3).delete()
        row = session.get_one(models.Schedule, 3)
        row.target, row.low, row.high = "cpu:znver1,threads=1", row.gflops, row.gflops
        row.digest = result_digest(ResultKey.of(row), row)
    compared = client.get("/compare?left=1&right=3").text
    assert "for different targets" in compared and "so this may be noise" in compared


def test_a_machine_says_which_jobs_it_runs_and_plans_it_makes():
    template = environment().get_template("overview.html")
    one = {"owner": "vm:1:1", "host": "vm", "cpu": "znver4", "targets": "", "capacity": 1}
    for jobs, plans, said in (
        ([7, 8], [], "runs job 7, 8, room for 1"),
        ([7], [2], "runs job 7, makes plan 2, room for 1"),
        ([], [2, 3], ">makes plan 2, 3, room for 1"),
        ([], [], "is idle, room for 1"),
    ):
        page = template.render(
            machines=[{**one, "jobs": jobs, "plans": plans}], jobs=[], rows=[], total=0, targets=[],
            choices={}, selection=FleetQuery(), pages=1, path="/", assets="", may_submit=False,
            is_signed_in=False, examples=EXAMPLES, origin="",
        )  # fmt: skip
        assert said in page


def test_steps_of_another_version_are_shown_without_a_drawing(client, schedule_id, sessions):
    retired = [{"step": "alternate", "dim": "k"}, Register(4, 16).to_json()]
    for steps, said in (
        ([{"step": "fold", "dim": "k"}], "{&#34;step&#34;: &#34;fold&#34;, &#34;dim&#34;: "),
        (retired, "alternate dim=k"),
    ):
        with writing(sessions) as session:
            row = session.scalars(select(models.Schedule)).one()
            row.steps, row.hash = steps, digest_of(steps)[:16]
            row.digest = result_digest(ResultKey.of(row), row)
        for path in (f"/problems/{KEY}", f"/compare?left={schedule_id}&right={schedule_id}"):
            page = client.get(path)
            assert page.status_code == 200 and said in page.text
            assert 'class="nest"' not in page.text
