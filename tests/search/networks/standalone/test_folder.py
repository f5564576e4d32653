"""A folder that a network is written to runs with NumPy alone, and computes the same bits."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from examples.models import MODELS
from tests.search.networks.lowering.drawn import apart, computed, plan_of
from tests.search.networks.lowering.drawn import program_of as program_from
from tests.search.networks.standalone.written import MODULE, Drawn, run_alone, written
from tilewise.search.networks.loader import network as loader
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.standalone import files
from tilewise.search.networks.standalone.files import load_here

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


def test_a_folder_computes_the_same_bits_alone(drawn: Drawn) -> None:
    for mapped in (False, True):
        found = run_alone(drawn.folder, drawn.argument, mapped=mapped, runs=2)
        assert np.array_equal(found, drawn.expected)
    about = json.loads((drawn.folder / "network.json").read_text())
    assert about["schema"] == loader.SCHEMA
    assert about["threads"] == 1
    held = Plan.from_json(json.loads((drawn.folder / "plan.json").read_text()))
    assert held == drawn.network.plan


@pytest.mark.full
@pytest.mark.parametrize("name", ["bert", "mixer"])
def test_a_folder_has_passes_that_were_made_for_it(name: str, tmp_path: Path) -> None:
    graph = MODELS[name](True)
    program = program_from(graph, "torch")
    network = LoweredNetwork(plan_of(program, 2), program)
    assert any(part.label.startswith("rows of ") for part in network.parts)
    argument = graph.argument(4)
    expected = computed(load_here(network, MODULE), graph, "torch", argument)
    if find_spec("torch") is not None:  # the extra `peers` installs it
        from examples.models.pytorch import reference

        assert apart(expected, reference(graph, argument)) < 1e-5
    folder = written(network, tmp_path)
    assert np.array_equal(run_alone(folder, argument), expected)


def test_arguments_are_checked(drawn: Drawn) -> None:
    network = loader.load(drawn.folder)
    with pytest.raises(ValueError, match="0 arguments; the network takes 1"):
        network.run()
    with pytest.raises(ValueError, match=r"argument 0 is float64\[2\], not float32\[1, 9, 9, 8\]"):
        network.run(np.zeros(2))


def test_symbols_are_of_one_model_and_one_target(drawn: Drawn) -> None:
    def name(model: str, target: str, module: bytes = MODULE) -> str:
        return files._name(replace(drawn.network.plan, model=model, target=target), module)

    names = [name("a-b.mlir", "znver5"), name("a_b.mlir", "znver5"), name("a_b.mlir", "znver4"),
             name("a_b.mlir", "znver5", b"another")]  # fmt: skip
    assert len(set(names)) == len(names)
    assert all(re.fullmatch("tilewise_network_a_b_[0-9a-f]{8}", one) for one in names)
    assert names[0] == name("a-b.mlir", "znver5")


def test_a_processor_that_lacks_extensions_is_told() -> None:
    told = loader._lacking(["avx512f", "no_such_extension"])
    assert told in ("no_such_extension", "avx512f, no_such_extension")
    assert loader._lacking([]) == "what the code needs"
