import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.service.api.plans.modules import MODULE, PROBLEMS, TEXT, filter_of, module
from tests.service.conftest import settings_for
from tests.service.processes import wait_until
from tilewise.kernels.system.toolchain import identity
from tilewise.search.networks.lowering.memory import poison_activations
from tilewise.search.networks.plan import Plan
from tilewise.service.app import create_app
from tilewise.service.host.machine import MachineInfo

ADDRESS = "/v1/plans"
TUNER = ("--tuner=tests.service.api.plans.tuners:tune", "--prover=tests.service.fakes:prove")


@pytest.fixture
def serving(url: str, machine: MachineInfo) -> Iterator[TestClient]:
    app = create_app(
        settings_for(url), 1, machine=machine, toolchain=identity(), worker_arguments=TUNER
    )
    with TestClient(app, raise_server_exceptions=True) as client:
        yield client


def ended(client: TestClient, number: int = 1) -> Any:
    def look() -> Any:
        return client.get(f"{ADDRESS}/{number}").json()

    wait_until(lambda: look()["state"] in ("done", "failed"), 120)
    return look()


def imported(text: str, folder: Path) -> ModuleType:
    path = folder / "runner.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("runner", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def convolved(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    _, height, width, _ = image.shape
    taps = [(i, j) for i in range(3) for j in range(3)]
    return sum(padded[:, i : i + height, j : j + width] @ weights[i, j] for i, j in taps)


@pytest.mark.full
@pytest.mark.sqlite_only
def test_a_plan_is_made_proven_and_run(serving: TestClient, tmp_path: Path) -> None:
    query = f"{ADDRESS}?trials=2&layouts=model&name=it's small.mlir"
    posted = serving.post(query, content=MODULE, headers=TEXT).json()
    links = posted["links"]
    early = serving.get(links["runner"])
    assert early.status_code == 409 and "once it is done" in early.json()["detail"]
    told = ended(serving)
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
    made = imported(runner.text, tmp_path)
    network = made.load(saved)
    image = np.random.default_rng(0).standard_normal((1, 10, 9, 8)).astype(np.float32)
    poison_activations(network)
    (result,) = network.run(image)
    weights = filter_of()
    expected = convolved(convolved(image, weights) * np.float32(0.5), weights)
    assert np.abs(result - expected).max() <= 1e-4 * np.abs(expected).max()
    with pytest.raises(ValueError, match="SHA-256"):
        made.load(module(seed=2).encode())

    streams: list[str] = []  # each is closed after a moment

    def is_told() -> bool:
        streams.append(serving.get(links["events"]).text)
        return "event: end" in streams[-1]

    wait_until(is_told)
    events = streams[-1]
    assert events.index("event: part") < events.index("event: end")
    end = json.loads(events.split("event: end\ndata: ")[1].split("\n")[0])
    assert end["state"] == "done" and "problems" not in end
