import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kernels.mlir.frontend.test_dims import SPELLINGS
from tests.service.api.test_http_modules import FOUND, MODULE
from tests.tilewise.conftest import Cli
from tilewise.cli.commands import modules

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

TABLE = """\
count  problem                                       where
1      matmul:m=4,n=6,k=5,dtype=f32,init=accumulate  @f 4:8

skipped        because it                                      where
linalg.matmul  adds products of bf16 up in bf16; known is f32  @f 6:8
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    path = tmp_path / "module.mlir"
    path.write_text(MODULE)
    return str(path)


def test_json_is_the_contracts(cli: Cli, module: str) -> None:
    ran = cli("import", module, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out) == FOUND


def test_a_table_is_for_people(cli: Cli, module: str) -> None:
    assert cli("import", module).out == TABLE


def test_strict_problems_are_what_a_list_can_have(cli: Cli, module: str, served: str) -> None:
    given = ("import", module, "--json", "--accuracy", "strict")
    here, there = cli(*given), cli(*given, "--server", served)
    assert here == there and here.code == 0
    (found,) = json.loads(here.out)["problems"]
    assert found["problem"] == f"{FOUND['problems'][0]['problem']},accuracy=strict"
    refused = cli("import", module, "--accuracy", "loose")
    assert refused.code == 2 and "--accuracy" in refused.err


def test_standard_input_is_read(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(MODULE.encode())))
    assert cli("import", "-").out == TABLE


def test_dynamic_dims_have_the_same_sizes_at_a_service(
    cli: Cli, served: str, tmp_path: Path
) -> None:
    path = tmp_path / "dynamic.mlir"
    path.write_text(SPELLINGS["linalg"])
    for dim, problem in (("0.0,1.0=7", "m=7"), ("0.0,1.0=6..20:4", "m=8..20:4")):
        given = ("import", str(path), "--json", "--dim", dim)
        here, there = cli(*given), cli(*given, "--server", served)
        assert here == there and here.code == 0, here.err
        (found,) = json.loads(here.out)["problems"]
        assert found["problem"].startswith(f"matmul:{problem},n=8,k=6,")
    for dims, lacking in (("0.0=7", "1.0"), ("0.0=1..3", "1.0"), ("2.0,0.0,1.0=7", "2.0")):
        for server in ((), ("--server", served)):
            refused = cli("import", str(path), "--dim", dims, *server)
            assert refused.code == 2 and refused.err.count("\n") == 1, refused.err
            assert "dim" in refused.err and lacking in refused.err


def test_a_module_without_products(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "empty.mlir"
    path.write_text("module {}")
    ran = cli("import", str(path))
    assert (ran.code, ran.out) == (0, "no matmul and no convolution was found\n")
    assert json.loads(cli("import", str(path), "--json").out) == {"problems": [], "skipped": []}


def test_many_places_are_cut_short() -> None:
    where = [f"@f#{i} linalg.matmul" for i in range(9)]
    found = {"problems": [{"problem": "p", "count": 9, "where": where}], "skipped": []}
    assert modules.problems_text(found).splitlines()[1] == "9      p        @f#0, @f#1, @f#2, ..."
