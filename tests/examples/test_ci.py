"""Examples of CI and of clusters."""

import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.commands import ROOT
from tests.service.cluster.farm import Farm
from tests.service.processes import serving, wait_until
from tests.short_timings import python_path
from tilewise.cli import main
from tilewise.cli.parser import make_parser
from tilewise.service.app import create_app
from tilewise.service.cluster.connection import Cluster
from tilewise.service.errors import UnreachableError
from tilewise.service.settings import Settings

FOLDER = Path(__file__).parents[2] / "examples" / "ci"
WORKFLOW = yaml.safe_load((FOLDER / "workflow.yml").read_text())
PROBLEM = "matmul:m=64,n=48,k=32,dtype=f32"
SCRIPT = "matmul_m64_n48_k32_f32.cpu.mlir"


def steps(job: str) -> dict[str, str]:
    found = WORKFLOW["jobs"][job]["steps"]
    return {step["name"]: step["run"] for step in found if "run" in step and
            step["name"] != "Install"}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that has a proven script of the problem, tuned for real."""
    database = f"sqlite:///{tmp_path_factory.mktemp('ci') / 'results.db'}"
    assert main(["tune", PROBLEM, "--trials", "4", "--db", database, "--json"]) == 0
    with serving(create_app(Settings(db=database), 0), log_level="warning") as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    shutil.copytree(FOLDER, made)
    return made


@pytest.fixture
def run(checkout: Path, server: str):
    """Runs a step in the checkout, as the runner's shell does."""

    def make(command: str, url: str = server) -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        cache = {"TILEWISE_CACHE_DIR": str(checkout / ".cache"), "TILEWISE_SERVER": url}
        environment = {**os.environ, "PATH": path, **cache}
        environment.pop("TILEWISE_DB", None)
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", command],
            cwd=checkout, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return make


@pytest.mark.full
def test_a_weekly_look_and_the_builds_after_it(run, checkout):
    newer, build = steps("newer"), steps("build")
    gain = run(newer["Gain"])
    assert gain.returncode == 0 and "not locked" in gain.stdout, gain.stderr
    assert run(newer["Fetch"]).returncode == 0
    assert (checkout / "scripts" / SCRIPT).exists() and (checkout / "tilewise.lock").exists()
    for name in build:
        done = run(build[name], url="http://127.0.0.1:1")
        assert done.returncode == 0, done.stdout + done.stderr
    made = (checkout / "build" / "matmul.mlir").read_text()
    assert "vector<" in made and "linalg.matmul" not in made
    shutil.rmtree(checkout / "scripts")
    again = run(build["Fetch"], url="http://127.0.0.1:1")
    assert again.returncode == 0, "the kept cache folder is enough"


@pytest.mark.full
def test_a_build_fails_where_the_folder_is_not_what_is_locked(run, checkout):
    assert run(steps("newer")["Fetch"]).returncode == 0
    (checkout / "scripts" / SCRIPT).write_text("module {}")
    fetched = run(steps("build")["Fetch"])
    assert fetched.returncode == 3 and SCRIPT in fetched.stderr
    assert run(steps("build")["Build"]).returncode != 0


def test_the_list_of_the_example_is_that_of_its_project(checkout):
    named = (checkout / "CMakeLists.txt").read_text()
    assert SCRIPT in named and PROBLEM in (checkout / "problems.txt").read_text()
    assert json.dumps(WORKFLOW["jobs"]["build"]).count("--frozen") == 1


@pytest.fixture
def script():
    spec = importlib.util.spec_from_file_location("farm", ROOT / "examples" / "slurm" / "farm.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    with made.make_cluster("compute", 0, 4, "8GB", "01:00:00") as cluster:
        return cluster.job_script()


def test_a_worker_of_slurm_has_a_node_to_itself(script):
    assert "#SBATCH -p compute" in script and "#SBATCH --exclusive" in script
    assert "#SBATCH --cpus-per-task=4" in script


@pytest.mark.full
def test_the_command_that_slurm_runs_joins_as_a_worker(script, tmp_path):
    """On this machine, with the scheduler of the test in place of the example's."""
    (line,) = [line for line in script.splitlines() if "dask_worker" in line]
    words = shlex.split(line)
    farm = Farm(tmp_path, ["scheduler"], PYTHONPATH=python_path(ROOT))
    farm.commands["worker"] = [words[2], farm.scheduler, *words[4:]]
    assert words[:2] == [sys.executable, "-m"]
    cluster = Cluster(farm.scheduler, farm.service)

    def seen():
        try:
            return list(cluster.workers().values())
        except UnreachableError:
            return []

    try:
        farm.start("worker-1")
        wait_until(seen, 120)
        (facts,) = seen()
        assert facts.machine.target in facts.targets and facts.measured is not None
        cluster.close()
    finally:
        farm.close()


def test_every_command_of_kubernetes_is_one_of_ours():
    commands = []
    text = (ROOT / "examples" / "kubernetes" / "tilewise.yaml").read_text()
    for manifest in yaml.safe_load_all(text):
        pod = manifest["spec"].get("template", {}).get("spec", {})
        for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
            program, *words = container["command"]
            assert program == "tilewise"
            commands.append(make_parser().parse_args(words).run.__name__)
            secrets = [one for one in container.get("env", ()) if "valueFrom" in one]
            assert bool(secrets) == (words[0] in ("serve", "db")), "no worker has the password"
    assert sorted(commands) == ["database", "scheduler", "serve", "worker"]
