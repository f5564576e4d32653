"""Networks that several tests run."""

import pytest

from examples.models.graph import Graph, Value
from tests.search.networks.lowering.drawn import computed, plan_of
from tests.search.networks.lowering.drawn import program_of as program_from
from tests.search.networks.standalone.written import MODULE, Drawn, written
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.standalone.files import load_here


@pytest.fixture(scope="package")
def graph() -> Graph:
    """Convolutions, one of them without a shape that divides, a residual, pools and a product."""
    graph = Graph("residual", Value("given", (1, 9, 9, 8)))
    x = graph.conv(graph.given, 8, 3)
    y = graph.add(graph.conv(x, 8, 3), x, relu=True)
    graph.linear(graph.mean_pool(graph.max_pool(graph.add(y, x))), 12)
    return graph


@pytest.fixture(scope="package")
def drawn(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """A network of one thread."""
    program = program_from(graph, "linalg")
    network = LoweredNetwork(plan_of(program, 5, copy_us=0.1), program)
    argument = graph.argument(3)
    expected = computed(load_here(network, MODULE), graph, "linalg", argument)
    folder = written(network, tmp_path_factory.mktemp("drawn"))
    return Drawn(network, folder, argument, expected)
