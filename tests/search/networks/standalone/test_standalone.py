"""A folder of a network runs with NumPy alone, from C, on two threads; damage is named."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from examples.models import MODELS
from examples.models.graph import Graph, Value
from tests.search.networks.lowering.drawn import apart, computed, plan_of, program_of
from tilewise.kernels.target import detect
from tilewise.search.networks.loader import network as loader
from tilewise.search.networks.lowering.network import LoweredNetwork
from tilewise.search.networks.plan import Plan
from tilewise.search.networks.standalone import files
from tilewise.search.networks.standalone.files import files_of, load_here

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
assert not found & {{"tilewise", "llvmlite"}}, found
"""

MODULE = b"a module"


@dataclass(frozen=True)
class Drawn:
    """A network with its folder, an argument, and its result."""

    network: LoweredNetwork
    folder: Path
    argument: np.ndarray
    expected: np.ndarray


def written(network: LoweredNetwork, folder: Path) -> Path:
    made = folder / "net"
    made.mkdir()
    for name, data in files_of(network, MODULE).items():
        (made / name).write_bytes(data)
    return made


def run_alone(folder: Path, argument: np.ndarray, *, mapped=False, runs=1, text=ALONE):
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
    text = text.format(path=path, mapped=mapped, given=given, made=made, runs=runs)
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True,
                           text=True, timeout=60, check=False)  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == ""
    return np.load(made)


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Convolutions, one of them without a shape that divides, a residual, pools and a product."""
    graph = Graph("residual", Value("given", (1, 9, 9, 8)))
    x = graph.conv(graph.given, 8, 3)
    y = graph.add(graph.conv(x, 8, 3), x, relu=True)
    graph.linear(graph.mean_pool(graph.max_pool(graph.add(y, x))), 12)
    return graph


def drawn_at(graph: Graph, folder: Path, seed: int, **options: float) -> Drawn:
    program = program_of(graph, "linalg")
    network = LoweredNetwork(plan_of(program, seed, **options), program)
    argument = graph.argument(seed + 1)
    expected = computed(load_here(network, MODULE), graph, "linalg", argument)
    return Drawn(network, written(network, folder), argument, expected)


@pytest.fixture(scope="module")
def drawn(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """A network of one thread."""
    return drawn_at(graph, tmp_path_factory.mktemp("drawn"), 5, copy_us=0.1)


def test_a_folder_computes_the_same_bits_alone(drawn: Drawn) -> None:
    for mapped in (False, True):
        found = run_alone(drawn.folder, drawn.argument, mapped=mapped, runs=2)
        assert np.array_equal(found, drawn.expected)
    about = json.loads((drawn.folder / "network.json").read_text())
    assert (about["schema"], about["threads"]) == (loader.SCHEMA, 1)
    held = Plan.from_json(json.loads((drawn.folder / "plan.json").read_text()))
    assert held == drawn.network.plan


@pytest.mark.full
@pytest.mark.parametrize("name", ["bert", "mixer"])
def test_a_folder_has_passes_that_were_made_for_it(name: str, tmp_path: Path) -> None:
    graph = MODELS[name](True)
    program = program_of(graph, "torch")
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


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "no text": ("network.json", lambda _: b"\xff", "cannot be read"),
    "no JSON": ("network.json", lambda data: data[:-9], "cannot be read"),
    "no object": ("network.json", lambda _: b"[]", "cannot be read"),
    "no name": ("network.json", lambda data: data.replace(b'"name"', b'"a"'), "KeyError: 'name'"),
    "no size": ("network.json", lambda data: data.replace(b'"barrier": ', b'"barrier":null,"a": '),
                "barrier is None"),
    "no shape": ("network.json", lambda data: data.replace(b'"shape"', b'"a"'), "'shape'"),
    "no digest": ("network.json", lambda data: data.replace(b".bin", b""), "weights.bin"),
    "another schema": ("network.json", lambda data: data.replace(b"network/1", b"network/0"),
                       "schema 'tilewise/network/0' is not tilewise/network/1"),
    "no code": ("network.so", lambda _: b"", "is damaged, or of another folder"),
    "other code": ("network.so", lambda data: data + b"\0", "is damaged, or of another folder"),
    "short weights": ("weights.bin", lambda data: data[:-1], "has .* it is damaged"),
    "other weights": ("weights.bin", lambda data: data[::-1], "is damaged, or of another folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_file_is_named(case: str, drawn: Drawn, tmp_path: Path) -> None:
    name, damage, told = DAMAGES[case]
    folder = tmp_path / "net"
    shutil.copytree(drawn.folder, folder)
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    with pytest.raises(RuntimeError, match=f"{name}.*{told}"):
        loader.load(folder)
    (folder / name).unlink()
    with pytest.raises(RuntimeError, match=f"{name} cannot be read .*; write the folder again by"):
        loader.load(folder)


def test_a_folder_that_is_written_again_is_loaded_again(graph: Graph, tmp_path: Path) -> None:
    for seed in (3, 4):  # of the same name and symbols
        (place := tmp_path / str(seed)).mkdir()
        made = drawn_at(graph, place, seed, copy_us=0.1 * seed)
        shutil.rmtree(tmp_path / "net", ignore_errors=True)
        shutil.copytree(made.folder, tmp_path / "net")
        (result,) = loader.load(tmp_path / "net").run(made.argument)
        np.testing.assert_array_equal(result, made.expected)


def test_weights_that_stay_in_their_file_are_not_read_ahead(drawn: Drawn, tmp_path: Path) -> None:
    folder = tmp_path / "net"
    shutil.copytree(drawn.folder, folder)
    weights = (folder / "weights.bin").read_bytes()
    (folder / "weights.bin").write_bytes(weights[::-1])
    loader.load(folder, mapped=True)
    (folder / "weights.bin").write_bytes(weights[:-1])
    with pytest.raises(RuntimeError, match=r"weights.bin has .* it is damaged"):
        loader.load(folder, mapped=True)


C_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "network.h"
#define JOINED(prefix, name) prefix##_##name
#define KEPT(name) JOINED(@MACRO@, name)
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
    if (!@NAME@_supported()) return 3;
    @NAME@_run(activations, weights);
    fwrite(activations + KEPT(RESULT_0_OFFSET), 1, atoi(argv[4]), stdout);
    return 0;
}
"""


@pytest.fixture
def compiler() -> str:
    found = shutil.which("cc")
    if found is None:
        pytest.skip("no C compiler is here: `cc` is absent")
    return found


def test_a_folder_is_called_from_c(drawn: Drawn, compiler: str, tmp_path: Path) -> None:
    name = json.loads((drawn.folder / "network.json").read_text())["name"]
    main, program, given = tmp_path / "main.c", tmp_path / "main", tmp_path / "argument"
    main.write_text(C_PROGRAM.replace("@NAME@", name).replace("@MACRO@", name.upper()))
    given.write_bytes(drawn.argument.tobytes())
    subprocess.run([compiler, f"-I{drawn.folder}", str(main), "-o", str(program),
                    str(drawn.folder / "libnetwork.a"), "-lm"], check=True, timeout=60)  # fmt: skip
    assert "link with -lm" in (drawn.folder / "network.h").read_text()
    sizes = str(drawn.argument.nbytes), str(drawn.expected.nbytes)
    words = [str(program), str(drawn.folder / "weights.bin"), str(given), *sizes]
    made = subprocess.run(words, capture_output=True, check=True, timeout=60)
    assert made.stdout == drawn.expected.tobytes()


def test_a_folder_of_passes_links_with_the_mathematics(compiler: str, tmp_path: Path) -> None:
    """Row passes call functions that are not in the C library itself on every system."""
    graph = MODELS["bert"](True)
    program = program_of(graph, "torch")
    folder = written(LoweredNetwork(plan_of(program, 2), program), tmp_path)
    command = [compiler, "-shared", "-o", str(tmp_path / "all.so"), "-Wl,--no-undefined",
               "-Wl,--whole-archive", str(folder / "libnetwork.a"),
               "-Wl,--no-whole-archive", "-lm"]  # fmt: skip
    ended = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


TWO = """
import os, sys, time
sys.path[:0] = {path!r}
import numpy, net
network, given = net.load(), numpy.load({given!r})
"""
WHOLE = """
import ctypes
run = network._code[network.about["name"] + "_run"]
run.argtypes, run.restype = [ctypes.c_void_p] * 2, None
network.inputs[0][...] = given
run(network.activations.ctypes.data, network.weights.ctypes.data)
numpy.save({made!r}, network.results[0])
"""
FORKED = """
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


@pytest.fixture(scope="module")
def double(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    """A network of two threads."""
    if detect().cores < 2:
        pytest.skip("one processor is usable here; two threads need two")
    return drawn_at(graph, tmp_path_factory.mktemp("double"), 3, threads=2)


@pytest.mark.parametrize("text", [ALONE, TWO + WHOLE, TWO + FORKED], ids=["alone", "whole", "fork"])
def test_two_threads_end_well(text: str, double: Drawn) -> None:
    """Run after run, where one thread does it all, and in a process that is forked off."""
    found = run_alone(double.folder, double.argument, runs=50, text=text)
    assert np.array_equal(found, double.expected)
