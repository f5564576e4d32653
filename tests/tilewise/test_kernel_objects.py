import json
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli
from tests.tilewise.test_kernel_asm import PROBLEM, server, stored
from tilewise.kernels.native.objects.object_files import Elf

__all__ = ["server", "stored"]  # fixtures

STEM = "matmul_m40_n50_k30_f32_bias_relu"


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize("where", ["here", "there"])
def test_an_object_comes_with_its_header(
    where: str, cli: Cli, stored: None, server: str, in_a_folder: Path
) -> None:
    place = ("--server", server) if where == "there" else ()
    ran = cli("kernel", PROBLEM, "--format", "object", *place)
    assert ran.code == 0, ran.err
    assert "run between guard pages" in ran.out and f"{STEM}.o" in ran.out
    told = json.loads(cli("kernel", PROBLEM, "--format", "bitcode", "--json", *place).out)
    assert (told["bitcode"], told["header"]) == (f"{STEM}.bc", f"{STEM}.h")
    assert told["proof"]["max_error"] <= told["proof"]["tolerance"]
    found = Elf.read((in_a_folder / f"{STEM}.o").read_bytes())
    assert told["symbol"] in found.defined and not found.undefined
    assert (in_a_folder / f"{STEM}.bc").read_bytes()[:2] == b"BC"
    header = (in_a_folder / f"{STEM}.h").read_text()
    assert cli("kernel", PROBLEM, "--format", "c-header", *place).out == header
    assert f"int {told['symbol']}_supported(void);" in header


def test_names_that_are_given(cli: Cli, stored: None, in_a_folder: Path) -> None:
    assert cli("kernel", PROBLEM, "--format", "object", "-o", "mine.obj").code == 0
    assert (in_a_folder / "mine.obj").exists() and (in_a_folder / "mine.h").exists()
    ran = cli("kernel", PROBLEM, "--format", "object", "-o", "mine.h")
    assert ran.code == 2 and "would be the header's name" in ran.err
    ran = cli("kernel", PROBLEM, "--format", "object", "-o", "nowhere/mine.o")
    assert ran.code == 2 and "there is no folder" in ran.err
    (in_a_folder / "taken.h").mkdir()
    ran = cli("kernel", PROBLEM, "--format", "object", "-o", "taken.o")
    assert ran.code == 2 and "it is a folder" in ran.err
    assert not (in_a_folder / "taken.o").exists()


@pytest.mark.parametrize("form", ["object", "bitcode", "c-header"])
def test_nothing_stored_and_bad_input(form: str, cli: Cli, in_a_folder: Path) -> None:
    ran = cli("kernel", PROBLEM, "--format", form)
    assert (ran.code, ran.out) == (3, "") and "tilewise tune makes one" in ran.err
    assert cli("kernel", "matmul:m=4", "--format", form).code == 2
    assert not [path for path in in_a_folder.iterdir() if path.suffix in (".o", ".h", ".bc")]
