import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli, Stored
from tests.tilewise.test_kernel_asm import server

__all__ = ["server"]  # a fixture

PROBLEMS = (
    "matmul:m=40,n=50,k=30,dtype=f32,bias,epilogue=relu",
    "matmul:m=8,n=16,k=24,dtype=i8,weights=constant",
)
NAMES = ["libtilewise.a", "manifest.json", "tilewise.h"]


@pytest.fixture
def listed(store: Stored, tmp_path: Path) -> str:
    store(*PROBLEMS)
    path = tmp_path / "problems.txt"
    path.write_text(f"# mine\n{PROBLEMS[0]}  # the first\n\n{PROBLEMS[1]}\n{PROBLEMS[0]}\n")
    return str(path)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.full
def test_the_folder_is_the_same_each_time_and_links(cli: Cli, listed: str, tmp_path: Path) -> None:
    made = [tmp_path / "one", tmp_path / "other"]
    for folder in made:
        ran = cli("library", listed, "-o", str(folder))
        assert ran.code == 0, ran.err
        assert "2 kernels" in ran.out
        assert sorted(path.name for path in folder.iterdir()) == NAMES
    for name in NAMES:
        assert (made[0] / name).read_bytes() == (made[1] / name).read_bytes()
    manifest = json.loads((made[0] / "manifest.json").read_text())
    assert [one["problem"] for one in manifest["kernels"]] == list(PROBLEMS)
    for part in ("archive", "header"):
        assert manifest[part]["sha256"] == digest(made[0] / manifest[part]["path"])
    _check_members(made[0], manifest)
    _check_linked(made[0], [one["alias"] for one in manifest["kernels"]])


def _check_members(folder: Path, manifest: dict[str, list[dict[str, str]]]) -> None:
    ar = shutil.which("ar") or shutil.which("llvm-ar")
    if ar is None:
        return
    for one in manifest["kernels"]:
        command = [ar, "p", str(folder / "libtilewise.a"), one["member"]]
        data = subprocess.run(command, capture_output=True, check=True).stdout
        assert hashlib.sha256(data).hexdigest() == one["sha256"]


def _check_linked(folder: Path, aliases: list[str]) -> None:
    cc = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if cc is None:
        return
    calls = " + ".join(f"{alias}_supported()" for alias in aliases)
    program = f'#include "tilewise.h"\nint main(void) {{ return {calls} - {len(aliases)}; }}\n'
    (folder / "main.c").write_text(program)
    flags = ["-std=c99", "-Wall", "-Werror", "-pedantic", "main.c", "-L.", "-ltilewise"]
    subprocess.run([cc, *flags, "-o", "program"], cwd=folder, check=True)
    assert subprocess.run([str(folder / "program")], check=False).returncode == 0


@pytest.mark.full
def test_what_is_not_stored_is_named_and_nothing_is_written(
    cli: Cli, listed: str, tmp_path: Path
) -> None:
    absent = "matmul:m=3,n=3,k=3,dtype=f64"
    path = tmp_path / "more.txt"
    path.write_text(f"{PROBLEMS[0]}\n{absent}\n")
    ran = cli("library", str(path), "-o", str(tmp_path / "folder"))
    assert ran.code == 3 and ran.out == ""
    assert f"tilewise: {absent}: no schedule is stored" in ran.err
    assert "1 of 2 problems are not stored; --tune-missing" in ran.err
    assert not (tmp_path / "folder").exists()
    options = ("--tune-missing", "--trials", "2", "--json")
    ran = cli("library", str(path), "-o", str(tmp_path / "folder"), *options)
    assert ran.code == 0, ran.err
    assert [one["problem"] for one in json.loads(ran.out)["kernels"]] == [PROBLEMS[0], absent]
