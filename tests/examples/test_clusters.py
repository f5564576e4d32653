import importlib.util
import shlex
import sys

import pytest
import yaml

from tests.docs.commands import ROOT
from tests.service.cluster.farm import Farm
from tests.service.processes import wait_until
from tilewise.cli.parser import make_parser
from tilewise.service.cluster.connection import Cluster
from tilewise.service.errors import UnreachableError

MANIFESTS = ROOT / "examples" / "kubernetes" / "tilewise.yaml"


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
    farm = Farm(tmp_path, ["scheduler"])
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
    for manifest in yaml.safe_load_all(MANIFESTS.read_text()):
        pod = manifest["spec"].get("template", {}).get("spec", {})
        for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
            program, *words = container["command"]
            assert program == "tilewise"
            commands.append(make_parser().parse_args(words).run.__name__)
            secrets = [one for one in container.get("env", ()) if "valueFrom" in one]
            assert bool(secrets) == (words[0] in ("serve", "db")), "no worker has the password"
    assert sorted(commands) == ["database", "scheduler", "serve", "worker"]
