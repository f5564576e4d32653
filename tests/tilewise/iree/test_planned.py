"""What a library for IREE takes of a plan."""

import pytest

from examples.models.graph import Graph
from tests.search.networks.test_blocks import blocky, planned_in_blocks
from tilewise.iree.planned import chosen
from tilewise.kernels.mlir.frontend.program import Program
from tilewise.kernels.problem import parse_problem

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
__all__ = ["blocky"]


def test_channels_in_blocks_become_kernels_of_plain_images(
    blocky: tuple[Graph, Program],
) -> None:
    _, program = blocky
    plan = planned_in_blocks(program, 0)
    found = chosen(plan)
    layers = {node.found.problem for node in plan.nodes if node.found is not None}
    assert {str(one.found) for one in found.wanted} == layers
    blocks = [note for note in found.notes if "has channels in blocks" in note]
    assert blocks and all(parse_problem(note.partition(": ")[0]) for note in blocks)
