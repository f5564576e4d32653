"""Whatever layouts a plan takes, the network computes what PyTorch computes."""

import random

import numpy as np
import pytest

from examples.models import MODELS
from examples.models.spellings import spelled
from tests.search.networks.executed import Execution
from tests.search.networks.test_planning import NAMED, Costs
from tilewise.kernels.mlir.frontend.read import read_graph
from tilewise.search.networks.planning import planned

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

PLANS = 6


@pytest.mark.parametrize("spelling", ["torch", "linalg"])
def test_a_network_computes_the_same_in_all_layouts(spelling: str) -> None:
    pytest.importorskip("torch", reason="the extra `peers` installs torch, which computes it")
    from examples.models.pytorch import reference

    model = MODELS["resnet50"](True)
    graph = read_graph(spelled(model, spelling).encode())
    argument = model.argument()
    expected = reference(model, argument)
    given = argument.transpose(0, 3, 1, 2) if spelling == "torch" else argument
    seen = set()
    for seed in range(PLANS):
        rng = random.Random(seed)
        plan = planned(graph, Costs(lambda _, rng=rng: rng.randint(1, 9), seed % 4), NAMED)
        found = Execution(plan, model).run(given)
        error = np.sqrt(np.mean((found - expected) ** 2) / np.mean(expected**2))
        assert error < 1e-6, plan.conversions
        seen |= {use.layout.name for node in plan.nodes for use in node.reads}
    other = "axes 2,3,1" if spelling == "torch" else "axes 3,1,2"
    assert {"plain", other, "halo 1", f"{other} halo 1"} <= seen
