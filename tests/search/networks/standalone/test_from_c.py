"""A folder's network in a C program."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from examples.models import MODELS
from tests.search.networks.lowering.drawn import plan_of
from tests.search.networks.lowering.drawn import program_of as program_from
from tests.search.networks.standalone.written import Drawn, written
from tilewise.search.networks.lowering.network import LoweredNetwork

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

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
    program = program_from(graph, "torch")
    folder = written(LoweredNetwork(plan_of(program, 2), program), tmp_path)
    command = [compiler, "-shared", "-o", str(tmp_path / "all.so"), "-Wl,--no-undefined",
               "-Wl,--whole-archive", str(folder / "libnetwork.a"),
               "-Wl,--no-whole-archive", "-lm"]  # fmt: skip
    ended = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
