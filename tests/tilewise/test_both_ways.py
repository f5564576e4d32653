import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli, serving, store_result
from tilewise.service.db import make_engine, models, writing
from tilewise.service.db.session import make_sessions

PROBLEM = "matmul:m=64,n=48,k=32,dtype=f32"
FIELD = "tilewise: "
ABSENT = "matmul:m=8,n=8,k=8,dtype=f32"


SAME: list[tuple[str, ...]] = [
    ("show", PROBLEM),
    ("show", PROBLEM, "--json"),
    ("show", PROBLEM, "--cache", "hot"),
    ("show", PROBLEM, "--cache", "cold"),
    ("show", ABSENT),
    ("show", "matmul:m=0,n=1,k=1,dtype=f32"),
    ("show", PROBLEM, "--target", "gpu:x"),
    ("script", PROBLEM),
    ("script", PROBLEM, "--json"),
    ("script", PROBLEM, "--with-payload"),
    ("script", ABSENT),
    ("kernel", PROBLEM),
    ("kernel", ABSENT),
    ("asm", PROBLEM),
    ("trials", PROBLEM),
    ("trials", PROBLEM, "--format", "json"),
    ("trials", PROBLEM, "--format", "csv"),
    ("trials", PROBLEM, "--format", "t4"),
    ("trials", ABSENT),
    ("tune", PROBLEM, "--trials", "4", "--json"),
    ("tune", PROBLEM, "--trials", "0"),
    ("tune", PROBLEM, "--target", "cpu:elsewhere,threads=1"),
]


@dataclass(frozen=True)
class Both:
    database: str
    url: str


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    database = f"sqlite:///{tmp_path_factory.mktemp('both') / 'results.db'}"
    with pytest.MonkeyPatch.context() as patch:
        store_result(database, patch)
    with writing(make_sessions(make_engine(database))) as session:
        session.query(models.Machine).one().bandwidth_gbs = 20.0
    with serving(database, 1) as url:
        yield Both(database, url)


@pytest.mark.full
@pytest.mark.parametrize("command", SAME, ids=" ".join)
def test_a_command_does_the_same_at_a_service(
    cli: Cli, both: Both, command: tuple[str, ...]
) -> None:
    here = cli(*command, "--db", both.database)
    there = cli(*command, "--server", both.url)
    assert (there.code, there.out) == (here.code, here.out)
    assert bool(there.err) == bool(here.err)
    if here.code != 3:  # what is not stored is told by the service, which knows it by its key
        assert there.err.removeprefix(FIELD) == here.err.removeprefix(FIELD)
    assert here.code or there.out


def test_a_new_search_ends_with_the_same_object(cli: Cli, served: str, tuned: str) -> None:
    made = json.loads(cli("tune", ABSENT, "--trials", "5", "--json", "--server", served).out)
    here = json.loads(cli("show", ABSENT, "--json", "--db", tuned).out)
    assert made == here and made["trials"]["timed"] == 5


@pytest.mark.full
@pytest.mark.parametrize("kind", ["convergence", "roofline", "nest"])
@pytest.mark.parametrize("what", [PROBLEM, "1"])
def test_a_plot_is_the_same_at_a_service(
    cli: Cli, both: Both, tmp_path: Path, kind: str, what: str
) -> None:
    here, there = tmp_path / "here.svg", tmp_path / "there.svg"
    for file, where in ((here, ("--db", both.database)), (there, ("--server", both.url))):
        ran = cli("plot", what, "--kind", kind, "-o", str(file), *where)
        assert (ran.code, ran.err) == (0, "")
    drawn = [re.sub(r"gradient_\d+", "gradient", file.read_text()) for file in (here, there)]
    assert drawn[0] == drawn[1] and drawn[0].startswith("<svg")


def test_a_service_and_its_machines_are_examined(cli: Cli, both: Both) -> None:
    found = json.loads(cli("doctor", "--server", both.url, "--json").out)
    assert found["server"] == "ok" and found["targets"] and len(found["workers"]) == 1
    assert "jobs at once" in cli("doctor", "--server", both.url).out


def test_no_service_runs_what_a_client_gives_it(cli: Cli, both: Both, tmp_path: Path) -> None:
    script = tmp_path / "script.mlir"
    script.write_text("module {}")
    ran = cli("verify", str(script), "--server", both.url)
    assert ran.code == 2 and "services do not do for clients" in ran.err


def test_the_environment_names_a_service_for_every_flavor(
    cli: Cli, both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWISE_SERVER", both.url)
    refused = cli("script", PROBLEM, "--flavor", "air", "--l1-bytes", "65536")
    assert refused.code == 2 and "works only without --server" in refused.err


def test_a_suite_is_measured_here_with_schedules_of_a_service(
    cli: Cli, served: str, tmp_path: Path
) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"suite": "one", "problems": [PROBLEM]}))
    ran = cli("bench", str(suite), "--peers", "openblas", "--json", "--server", served)
    assert ran.code == 0, ran.err
    (row,) = json.loads(ran.out)["problems"]
    assert row["ours"]["gflops"] > 0
