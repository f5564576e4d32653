import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.mlir.network import networks
from tests.tilewise.conftest import Cli

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "model.mlir"
    path.write_bytes(networks.products(8, (16, 32, 16)))
    return str(path)


def test_a_script_is_proven_and_its_counts_are_told(cli: Cli, module: str, tmp_path: Path) -> None:
    file = tmp_path / "packed.mlir"
    ran = cli("script", module, "--packs", "--channels", "16", "--with-payload", "-o", str(file))
    assert ran.code == 0, ran.err
    assert "packs 1, unpacks 1 of activations; 0 of them move data" in ran.err
    assert "// error: " in file.read_text()
    iree_opt = Path(sys.executable).with_name("iree-opt")
    applied = subprocess.run(
        [iree_opt, "--transform-interpreter", file], capture_output=True, text=True, check=False
    )
    assert applied.returncode == 0 and not applied.stderr, applied.stderr
    assert applied.stdout.count("linalg.pack ") == 3  # the input, and both weights


@pytest.mark.full
def test_json_tells_blocks(cli: Cli, module: str) -> None:
    ran = cli("script", module, "--packs", "--blocks", "2=4,8,16", "--json")
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["packed"][1]["number"] == 2 and told["packed"][1]["blocks"] == [4, 8, 16]
    assert told["packs"] + told["unpacks"] > 2 and told["moves"]
    assert told["proof"]["max_error"] <= told["proof"]["tolerance"]
    assert "@__transform_main" in told["script"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--packs", "--blocks", "1=x"], "blocks='1=x': give NUMBER=ROWS,COLUMNS,DEPTH"),
        (["--packs", "--blocks", "1=0,5,0"], "op 1, @main .* has columns of 32, which blocks of 5"),
        (["--packs", "--blocks", "9=0,4,0"], "no op has the number 9; 2 may be packed"),
        (["--packs", "--rows", "-1"], "rows=-1 is out of range"),
        (["--packs", "--seconds", "0"], "seconds=0: give more than 0"),
        (["--packs", "--place", "1"], "--packs is of a whole module, without --flavor and --place"),
        (["--packs", "--db", "sqlite://"], "packs are made here and not stored"),
        (["other.mlir", "--packs"], "packs are of one module"),
        (["--channels", "8"], "--channels is for --packs"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    cli: Cli, module: str, options: list[str], message: str
) -> None:
    ran = cli("script", module, *options)
    assert ran.code == 2 and ran.err.count("\n") == 1
    assert re.match(f"tilewise: {message}", ran.err), ran.err


def test_a_module_without_such_ops_is_missing(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_bytes(networks.products(3, (5, 7)))
    ran = cli("script", str(path), "--packs")
    assert ran.code == 3 and "has no op that can be packed; @main" in ran.err
