"""Plans that version 0.1 made: read, named, and refused where their layouts are no longer run."""

import json
from dataclasses import replace

import pytest

from examples.models.graph import Graph, Value
from tests.search.networks.lowering.drawn import plan_of, program_of
from tilewise.kernels.mlir.frontend.program import ModuleProgram
from tilewise.model.libraries import chosen
from tilewise.search.errors import NetworkError
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.plan import Plan, PlannedNode


@pytest.fixture(scope="module")
def program() -> ModuleProgram:
    """One convolution."""
    graph = Graph("earlier", Value("given", (1, 9, 7, 32)))
    graph.conv(graph.given, 64, 1)
    return program_of(graph, "torch")


def test_a_plan_of_before_there_were_blocks_is_read(program: ModuleProgram) -> None:
    plan = plan_of(program, 0)

    def without(part: object) -> object:
        if isinstance(part, list | tuple):
            return [without(one) for one in part]
        if not isinstance(part, dict):
            return part
        return {name: without(one) for name, one in part.items() if name != "block"}

    assert Plan.from_json(json.loads(json.dumps(without(plan.to_json())))) == plan


def test_a_plan_with_channels_in_blocks_is_read_and_not_run(program: ModuleProgram) -> None:
    def cut(node: PlannedNode) -> PlannedNode:
        if node.found is None:
            return node
        makes = [replace(use, layout=replace(use.layout, block=32)) for use in node.makes]
        return replace(node, makes=tuple(makes))

    plan = plan_of(program, 0)
    earlier = replace(plan, nodes=tuple(map(cut, plan.nodes)))
    assert Plan.from_json(json.loads(json.dumps(earlier.to_json()))) == earlier
    names = [use.layout.name for node in earlier.nodes for use in node.makes]
    assert any("blocks of 32" in name for name in names)
    with pytest.raises(NetworkError, match=r"channels are in blocks.*make the plan again"):
        LoweredNetwork(earlier, program)
    notes = chosen(earlier).notes
    assert len([note for note in notes if "has channels in blocks" in note]) == 1
