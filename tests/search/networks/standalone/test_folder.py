"""A folder that a network is written to runs with NumPy alone, and computes the same bits."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples.models import MODELS
from examples.models.graph import Graph, Value
from kernels.target import detect
from search.errors import NetworkError
from search.networks.plan import Plan
from search.networks.running.network import Network
from search.networks.standalone import runner
from search.networks.standalone.files import files_of, program_of
from tests.search.networks.running.drawn import computed, plan_of
from tests.search.networks.running.drawn import program_of as program_from

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

ALONE = """
import sys
sys.path[:0] = {path!r}
import numpy, net
try:
    import numba
except ImportError:
    pass
else:
    sys.exit("this child finds Numba")
network = net.load(mapped={mapped})
results = [network.run(numpy.load({given!r}))[0] for _ in range({runs})]
assert all(numpy.array_equal(results[0], one) for one in results)
numpy.save({made!r}, results[0])
found = {{name.partition(".")[0] for name in sys.modules}}
print(sorted(found & {{"kernels", "search", "llvmlite"}}))
"""


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Convolutions, one of them without a shape that divides, a residual, pools and a product."""
    graph = Graph("residual", Value("given", (1, 9, 9, 8)))
    x = graph.conv(graph.given, 8, 3)
    y = graph.add(graph.conv(x, 8, 3), x, relu=True)
    graph.linear(graph.mean_pool(graph.max_pool(graph.add(y, x))), 12)
    return graph


def written(network: Network, folder: Path) -> Path:
    made = folder / "net"
    made.mkdir()
    for name, data in files_of(network).items():
        (made / name).write_bytes(data)
    return made


def run_alone(folder: Path, argument: np.ndarray, *, mapped: bool = False, runs: int = 1):
    """The result of a child that finds the folder and NumPy, and no other package."""
    packages = folder.parent / "packages"
    if not packages.exists():
        packages.mkdir()
        site = Path(np.__file__).parent.parent
        for name in ("numpy", "numpy.libs"):
            if (site / name).exists():
                (packages / name).symlink_to(site / name)
    given, made = (str(folder.parent / name) for name in ("given.npy", "made.npy"))
    np.save(given, argument)
    path = [str(folder.parent), str(packages)]
    text = ALONE.format(path=path, mapped=mapped, given=given, made=made, runs=runs)
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True,
                           text=True, timeout=120, check=False)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "[]\n"
    return np.load(made)


def test_a_folder_computes_the_same_bits_alone(graph: Graph, tmp_path: Path) -> None:
    program = program_from(graph, "linalg")
    network = Network(plan_of(program, 5, copy_us=0.1), program)
    argument = graph.argument(3)
    expected = computed(network, graph, "linalg", argument)
    folder = written(network, tmp_path)
    for mapped in (False, True):
        assert np.array_equal(run_alone(folder, argument, mapped=mapped, runs=2), expected)
    about = json.loads((folder / "network.json").read_text())
    assert about["schema"] == runner.SCHEMA
    assert about["threads"] == 1
    assert Plan.from_json(json.loads((folder / "plan.json").read_text())) == network.plan
    _refuses_what_is_not_for_it(folder)
    _is_called_from_c(folder, argument, expected)


@pytest.mark.parametrize("name", ["bert", "mixer"])
def test_a_folder_has_passes_that_were_made_for_it(name: str, tmp_path: Path) -> None:
    graph = MODELS[name](True)
    network = Network(plan_of(program_from(graph, "torch"), 2), program_from(graph, "torch"))
    assert any(label.startswith("rows of ") for label in network.labels)
    argument = graph.argument(4)
    expected = computed(network, graph, "torch", argument)
    folder = written(network, tmp_path)
    assert np.array_equal(run_alone(folder, argument), expected)


def _refuses_what_is_not_for_it(folder: Path) -> None:
    network = runner.load(folder)
    with pytest.raises(ValueError, match="0 arguments; the network takes 1"):
        network.run()
    with pytest.raises(ValueError, match=r"argument 0 is float64\[2\], not float32\[1, 9, 9, 8\]"):
        network.run(np.zeros(2))
    other = folder.parent / "other"
    shutil.copytree(folder, other)
    weights = (other / "weights.bin").read_bytes()
    (other / "weights.bin").write_bytes(weights[:-1])
    with pytest.raises(RuntimeError, match=r"weights.bin has .* it is damaged"):
        runner.load(other)
    about = json.loads((other / "network.json").read_text())
    (other / "network.json").write_text(json.dumps(about | {"schema": "another"}))
    with pytest.raises(RuntimeError, match="schema 'another' is not tilewise/network/1"):
        runner.load(other)


C_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "network.h"
#define KEPT(name) TILEWISE_NETWORK_DRAWN_##name
static void read_all(const char *path, void *to, size_t size) {
    FILE *file = fopen(path, "rb");
    if (!file || fread(to, 1, size, file) != size) exit(2);
    fclose(file);
}
int main(int argc, char **argv) {
    char *activations = aligned_alloc(KEPT(ALIGNMENT), KEPT(ACTIVATIONS_BYTES));
    char *weights = aligned_alloc(KEPT(ALIGNMENT), KEPT(WEIGHTS_BYTES));
    memset(activations, 0, KEPT(ACTIVATIONS_BYTES));
    read_all(argv[1], weights, KEPT(WEIGHTS_BYTES));
    read_all(argv[2], activations + KEPT(INPUT_0_OFFSET), atoi(argv[3]));
    if (!tilewise_network_drawn_supported()) return 3;
    tilewise_network_drawn_run(activations, weights);
    fwrite(activations + KEPT(RESULT_0_OFFSET), 1, atoi(argv[4]), stdout);
    return 0;
}
"""


def _is_called_from_c(folder: Path, argument: np.ndarray, expected: np.ndarray) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        return
    (folder.parent / "main.c").write_text(C_PROGRAM)
    (folder.parent / "argument").write_bytes(argument.tobytes())
    program = folder.parent / "main"
    subprocess.run([compiler, f"-I{folder}", str(folder.parent / "main.c"), "-o", str(program),
                    str(folder / "libnetwork.a")], check=True, timeout=60)  # fmt: skip
    sizes = str(argument.nbytes), str(expected.nbytes)
    given = [str(folder / "weights.bin"), str(folder.parent / "argument"), *sizes]
    made = subprocess.run([str(program), *given], capture_output=True, check=True, timeout=60)
    assert made.stdout == expected.tobytes()


def test_two_threads_run_a_folder(graph: Graph, tmp_path: Path) -> None:
    if detect().cores < 2:
        pytest.skip("one processor is usable here; two threads need two")
    program = program_from(graph, "linalg")
    network = Network(plan_of(program, 3, threads=2), program)
    argument = graph.argument(4)
    expected = computed(network, graph, "linalg", argument)
    assert np.array_equal(run_alone(written(network, tmp_path), argument, runs=50), expected)


def test_a_processor_that_lacks_extensions_is_told() -> None:
    told = runner._lacking(["avx512f", "no_such_extension"])
    assert told in ("no_such_extension", "avx512f, no_such_extension")
    assert runner._lacking([]) == "one of "


def test_a_part_that_is_told_to_nobody_is_refused(graph: Graph) -> None:
    program = program_from(graph, "linalg")
    network = Network(plan_of(program, 5), program)
    (label, step), *_ = network.steps
    network._chains.steps[0] = label, None
    with pytest.raises(NetworkError, match="runs in this process alone"):
        program_of(network)
    address = int(network.inputs[0].ctypes.data)
    network._chains.steps[0] = label, replace(step, rows=((address,),))
    with pytest.raises(NetworkError, match="runs in this process alone"):
        program_of(network)
