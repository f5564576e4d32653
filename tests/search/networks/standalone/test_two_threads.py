"""Two threads run a folder, after whatever happened to a run before."""

import numpy as np
import pytest

from examples.models.graph import Graph
from tests.search.networks.lowering.drawn import computed, plan_of
from tests.search.networks.lowering.drawn import program_of as program_from
from tests.search.networks.standalone.written import MODULE, Drawn, run_alone, written
from tilewise.kernels.target import detect
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.standalone.files import load_here

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

TWO = """
import os, sys, time
sys.path[:0] = {path!r}
import numpy, net
network, given = net.load(), numpy.load({given!r})
"""
WHOLE = (
    TWO
    + """
import ctypes
run = network._code[network.about["name"] + "_run"]
run.argtypes, run.restype = [ctypes.c_void_p] * 2, None
network.inputs[0][...] = given
run(network.activations.ctypes.data, network.weights.ctypes.data)
numpy.save({made!r}, network.results[0])
"""
)
FORKED = (
    TWO
    + """
before, = network.run(given)
network._turn().acquire()  # as a thread that runs it at the time of the fork has it
network._pool._barrier[0] = 1  # and as a helper that has arrived
child = os.fork()
if not child:
    network.run(given * 0)
    result, = network.run(given)
    os._exit(0 if numpy.array_equal(result, before) else 7)
network._pool._barrier[0] = 0
network._turn().release()
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
result, = network.run(given)
numpy.save({made!r}, result)
"""
)


@pytest.fixture(scope="module")
def double(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """A network of two threads."""
    if detect().cores < 2:
        pytest.skip("one processor is usable here; two threads need two")
    program = program_from(graph, "linalg")
    network = LoweredNetwork(plan_of(program, 3, threads=2), program)
    argument = graph.argument(4)
    expected = computed(load_here(network, MODULE), graph, "linalg", argument)
    folder = written(network, tmp_path_factory.mktemp("double"))
    return Drawn(network, folder, argument, expected)


def test_two_threads_run_a_folder(double: Drawn) -> None:
    assert np.array_equal(run_alone(double.folder, double.argument, runs=50), double.expected)


@pytest.mark.parametrize("text", [WHOLE, FORKED], ids=["whole", "forked"])
def test_two_threads_end_well(text: str, double: Drawn) -> None:
    """Where one thread does it all, and in a process that is forked off."""
    found = run_alone(double.folder, double.argument, text=text)
    assert np.array_equal(found, double.expected)
