"""Modules of users: imported, verified, packed, and with scripts of their ops."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from examples.models.graph import Graph, Value
from examples.models.spellings import spelled
from tests.cases import some
from tests.kernels.mlir import in_process
from tests.kernels.mlir.build import PACKED, schedule
from tests.kernels.mlir.frontend.test_dims import SPELLINGS
from tests.kernels.mlir.network import networks
from tests.kernels.mlir.op_scripts.test_ops import generic
from tests.kernels.mlir.proof import test_verify as texts
from tests.service.api.test_http_modules import FOUND, MODULE
from tests.tilewise.conftest import Cli, Ran, written
from tilewise.backends.local import LocalBackend
from tilewise.cli.commands import modules
from tilewise.cli.commands.scripts.op_of_module import _schedules
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.mlir.iree.module_text import module_text
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.schedule import Register, Schedule

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")
read_here = in_process.read_here

TABLE = """\
count  problem                                       where
1      matmul:m=4,n=6,k=5,dtype=f32,init=accumulate  @f 4:8

skipped        because it                                      where
linalg.matmul  adds products of bf16 up in bf16; known is f32  @f 6:8
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    return written(tmp_path / "module.mlir", MODULE)


def test_json_is_the_contracts_and_a_table_is_for_people(cli, module, monkeypatch) -> None:
    ran = cli("import", module, "--json")
    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out) == FOUND
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(MODULE.encode())))
    assert cli("import", "-").out == TABLE
    os.mkfifo(fifo := Path(module).with_name("fifo"))
    Thread(target=fifo.write_text, args=(MODULE,)).start()
    assert cli("import", str(fifo)).out == TABLE


def test_strict_problems_are_what_a_list_can_have(cli, module, served_as_stored) -> None:
    given = ("import", module, "--json", "--accuracy", "strict")
    here, there = cli(*given), cli(*given, "--server", served_as_stored)
    assert here == there and here.code == 0
    (found,) = json.loads(here.out)["problems"]
    assert found["problem"] == f"{FOUND['problems'][0]['problem']},accuracy=strict"
    for option, value in (("--accuracy", "loose"), ("--seconds", "9")):
        assert option in cli("import", module, option, value, "--server", served_as_stored).error()


@pytest.mark.full
def test_dynamic_dims_have_the_same_sizes_at_a_service(cli, served, tmp_path) -> None:
    path = written(tmp_path / "dynamic.mlir", SPELLINGS["linalg"])
    for dim, problem in (("0.0,1.0=7", "m=7"), ("0.0,1.0=6..20:4", "m=8..20:4")):
        given = ("import", path, "--json", "--dim", dim)
        here, there = cli(*given), cli(*given, "--server", served)
        assert here == there and here.code == 0, here.err
        (found,) = json.loads(here.out)["problems"]
        assert found["problem"].startswith(f"matmul:{problem},n=8,k=6,")
    for dims, lacking in (("0.0=7", "1.0"), ("0.0=1..3", "1.0"), ("2.0,0.0,1.0=7", "2.0")):
        for server in ((), ("--server", served)):
            said = cli("import", path, "--dim", dims, *server).error()
            assert "dim" in said and lacking in said


def test_a_module_without_products_or_with_many_places(cli: Cli, tmp_path: Path) -> None:
    found = cli("import", written(tmp_path / "empty.mlir", "module {}"), "--json").json
    assert found == {"problems": [], "skipped": []}
    assert modules.problems_text(found) == "no matmul and no convolution was found\n"
    where = [f"@f#{i} linalg.matmul" for i in range(9)]
    found = {"problems": [{"problem": "p", "count": 9, "where": where}], "skipped": []}
    assert modules.problems_text(found).splitlines()[1] == "9      p        @f#0, @f#1, @f#2, ..."


def verified(cli: Cli, folder: Path, script: str, payload: str, *options: str) -> Ran:
    """Run `tilewise verify` on a script and the payload `payload.mlir`."""
    (folder / "script.mlir").write_text(script)
    (folder / "payload.mlir").write_text(payload)
    given = (str(folder / "script.mlir"), "--payload", str(folder / "payload.mlir"))
    return cli("verify", *given, *options)


@pytest.mark.full
def test_a_script_of_ours_names_its_problem_in_its_header(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path / "script.mlir", emit_script(texts.MATMUL, schedule(*PACKED)))
    done = cli("verify", path)
    assert done.code == 0, done.err
    assert f"problem   {texts.MATMUL}" in done.out
    assert "forall 2 trips" in done.out and "GFLOP/s" in done.out
    found = cli("verify", path, "--json").json
    assert found["ok"] and found["problem"] == str(texts.MATMUL)
    assert found["structure"][0] == "func @kernel"


def test_a_script_and_a_payload_of_somebody_else(cli: Cli, tmp_path: Path) -> None:
    done = verified(cli, tmp_path, texts.tiled("[2, 0, 4]", 2), texts.PAYLOAD)
    assert done.code == 0, done.err
    assert "for 8 trips, step 2" in done.out and "without the script" in done.out


VECTORIZE = "transform.structured.vectorize %op vector_sizes [1] : !transform.any_op"
NO_OP = texts.DEPTHWISE.replace("%r =", "%r = %x +")


@pytest.mark.parametrize(("given", "payload", "says", "shown"), some([
    (texts.tiled("[2, 2, 2, 2]", 2), texts.PAYLOAD, "apply: line 4: %t", "applied   no"),
    (texts.script(VECTORIZE), texts.DEPTHWISE,
     "payload.mlir: apply: line 4 of the payload: %r = ", "applied   no"),
    (texts.script(VECTORIZE), NO_OP, "payload.mlir: apply: payload: line 4: %r = ", ""),
    (texts.SUM_OVER_K, texts.PAYLOAD, "race: iterations of scf.forall depend on each other",
     "tiling is not thread safe at axis #2"),
    (texts.demoted("f16"), texts.PAYLOAD, "wrong: the result is", ""),
], of=5), ids=["tiles", "op", "payload", "race", "precision"])  # fmt: skip
def test_what_a_script_does_wrong_is_one_line(cli, tmp_path, given, payload, says, shown) -> None:
    file = Path(written(tmp_path / "out.mlir", "before"))
    failed = verified(cli, tmp_path, given, payload, "-o", str(file))
    assert (file.read_text() == "before") == ("applied   no" in failed.out)
    assert failed.code == 1 and failed.err.count("\n") == 1
    assert says in failed.err and shown in failed.out
    told = verified(cli, tmp_path, given, payload, "--json").out
    assert not json.loads(told, parse_constant=pytest.fail)["ok"]


HUGE = "matmul:m=100000,n=100000,k=100000,dtype=f32"


@pytest.mark.full
def test_what_makes_no_sense_is_bad_input(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path / "script.mlir", texts.tiled("[2]", 1))
    ranged = written(tmp_path / "ranged.mlir", "// problem: matmul:m=1..4,n=8,k=8,dtype=f32\n")
    for arguments, says in (
        ((ranged,), "ranged.mlir is of a range"),
        ((path,), "names no problem; give --payload or --problem"),
        ((path, "--problem", "matmul:m=1"), "matmul"),
        ((path, "--problem", f"{HUGE}"), "this machine has"),
        ((path, "--problem", str(texts.MATMUL), "--payload", "x"), "not both"),
        ((path, "--payload", str(tmp_path / "absent")), "cannot read"),
        ((str(tmp_path / "absent"),), "cannot read"),
        *(((path, "--problem", str(texts.MATMUL), f"--seconds={seconds}"), "give more than 0")
          for seconds in ("nan", "inf", "1e30", "-1", "0")),
    ):  # fmt: skip
        assert says in cli("verify", *arguments).error()


AIR = "matmul:m=64,n=64,k=128,dtype=i32"
PROBLEM = "matmul:m=24,n=64,k=24,dtype=f32,transpose_b,init=accumulate"
OP = generic("k, j, i", ("k, i", "j, k", "i, j"), ("24x24", "64x24", "24x64"))


@pytest.fixture
def model(tmp_path: Path) -> str:
    return written(tmp_path / "model.mlir", OP)


def applied(file: Path) -> str:
    """Return what `iree-opt` makes of a file with a script and its payload."""
    command = [Path(sys.executable).with_name("iree-opt"), "--transform-interpreter", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize(("failure", "wanted"), [(None, (3, 1, 2)), ("slower", (1, 2, 3))])
def test_the_schedule_of_the_problems_own_script_comes_first(failure, wanted) -> None:
    """Behind it the fastest kernel, and the others as fast as they are."""
    rows = {n: Schedule((Register(n, 16),)) for n in (1, 2, 3)}
    shown = {n: {"hash": one.hash, "steps": one.to_json()} for n, one in rows.items()}
    proof = {"failure": failure, **shown[3]}
    trials = [{**shown[n], "state": "timed", "gflops": 9.0 - n} for n in (3, 1, 2)]
    backend = Mock(LocalBackend)
    backend.show.return_value = {"best": shown[1], "proof": proof}
    gone = {**trials[0], "hash": "0", "steps": [{"step": "of another version"}]}
    backend.trials.return_value = [gone, *trials]
    found = list(_schedules(backend, [parse_problem(PROBLEM)], "host", lambda _, one: one))
    assert found == [rows[n] for n in wanted]


@pytest.mark.full
def test_a_schedule_of_the_store_is_proven_on_the_op(cli, untimed, model: str, tmp_path) -> None:
    named = cli("import", model, "--json").json["problems"][0]["problem"]
    assert f"no schedule of {named} is stored; tilewise tune" in cli("script", model).error(3)
    assert cli("tune", named, "--trials", "4").code == 0
    told = cli("script", model, "--json").json
    of_script = cli("show", named, "--json").json["proof"]["hash"]
    assert told["problem"] == named
    assert told["place"] == "@f 3:8 linalg.generic"
    assert told["schedule"]["hash"] == of_script
    assert Schedule.from_json(told["schedule"]["steps"]).hash == of_script
    assert told["proof"]["max_error"] <= told["proof"]["tolerance"]
    assert f"// schedule: {of_script}" in told["script"]
    file = tmp_path / "whole.mlir"
    assert cli("script", model, "--place", "1", "--with-payload", "-o", str(file)).code == 0
    assert "func.func @kernel" in applied(file)


LAYER = Graph("layer", Value("given", (20, 24)))
LAYER.linear(LAYER.given, 32)
WEIGHTS = spelled(LAYER)
CHANNELS_FIRST = module_text(parse_problem(
    "conv2d:n=1,h=6,w=6,ci=8,co=16,kh=3,kw=3,dtype=f32,layout=nchw_fchw"
))  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize(("text", "has"), [
    (WEIGHTS, "bias,weights=constant"),  # the op by itself has neither
    (CHANNELS_FIRST, "layout=nchw_fchw"),  # the script's loops are those of pixels first
], ids=["weights", "channels first"])  # fmt: skip
def test_what_import_names_is_what_has_to_be_tuned(cli, untimed, tmp_path, text, has) -> None:
    path = written(tmp_path / "module.mlir", text)
    named = cli("import", path, "--json").json["problems"][0]["problem"]
    assert has in named
    missing = cli("script", path)
    assert missing.code == 3 and named in missing.err
    alone = "matmul:m=20,n=32,k=24,dtype=f32"
    assert text != WEIGHTS or f"no schedule of {named} or {alone} is stored" in missing.err
    assert cli("tune", named, "--trials", "2").code == 0
    told = cli("script", path, "--json").json
    assert text != WEIGHTS or told["problem"] == alone
    assert told["proof"]["max_error"] <= told["proof"]["tolerance"]


def test_a_script_needs_no_tuning_and_no_store(cli: Cli, tmp_path: Path) -> None:
    ran = cli("script", AIR, "--flavor", "air", "--json")
    assert (ran.err, ran.json["problem"], ran.json["flavor"]) == ("", AIR, "air")
    header, _, body = ran.json["script"].partition("module")
    assert "modelled, not measured" in header
    assert "executed on a processor, exact" in header
    assert "func.func @kernel" not in body
    assert not (tmp_path / "results.db").exists()


def test_options_are_the_declared_machine(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "air.mlir"
    ran = cli(
        "script", AIR, "--flavor", "air", "--l1-bytes", "4096", "--l2-bytes", "32768",
        "--result", "l2", "--with-payload", "-o", str(path),
    )  # fmt: skip
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    for said in ("L1 of 4096 bytes, L2 of 32768", "func.func @kernel", "result L1 to L2 "):
        assert said in path.read_text()


@pytest.mark.parametrize(
    "problem",
    ["conv2d:n=1,h=8,w=8,ci=8,co=8,kh=3,kw=3,dtype=f32", "matmul:batch=2,m=8,n=8,k=8,dtype=f32",
     "matmul:m=8,n=8,k=8,dtype=f32,bias"],
)  # fmt: skip
def test_what_has_no_air_script_does_not_exist(cli: Cli, problem: str) -> None:
    said = cli("script", problem, "--flavor", "air").error(3)
    assert problem in said and "yet" in said


@pytest.fixture
def layers(tmp_path: Path) -> str:
    return written(tmp_path / "model.mlir", networks.products(8, (16, 32, 16)).decode())


def test_a_script_is_proven_and_its_counts_are_told(cli: Cli, layers: str, tmp_path: Path) -> None:
    file = tmp_path / "packed.mlir"
    ran = cli("script", layers, "--packs", "--channels", "16", "--with-payload", "-o", str(file))
    assert ran.code == 0, ran.err
    assert "packs 1, unpacks 1 of activations; 0 of them move data" in ran.err
    now = f"model {layers} --as packs -o {file} --channels 16 --with-payload\n"
    assert ran.err.endswith(f"this is now: tilewise {now}")
    assert "// error: " in file.read_text()
    assert applied(file).count("linalg.pack ") == 3  # the input, and both weights


@pytest.mark.full
def test_json_tells_blocks(cli: Cli, layers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_SERVER", "http://127.0.0.1:1")
    told = cli("script", layers, "--packs", "--blocks", "2=4,8,16", "--json").json
    assert told["packed"][1]["number"] == 2 and told["packed"][1]["blocks"] == [4, 8, 16]
    assert told["packs"] + told["unpacks"] > 2 and told["moves"]
    assert told["proof"]["max_error"] <= told["proof"]["tolerance"]
    assert "@__transform_main" in told["script"]


@pytest.mark.parametrize(("options", "message"), [
    (["--place", "3"], "place='3': no op has the number 3; the module has 2"),
    (["--place", "1", "--flavor", "iree"], "--place is of an op of MODULE.mlir, for --flavor"),
    (["--l1-bytes", "65536"], "--l1-bytes is for --flavor air, not cpu"),
    (["other.mlir"], "a script is of one op; give one module, with --place"),
    (["--packs", "--blocks", "1=x"], "blocks='1=x': give NUMBER=ROWS,COLUMNS,DEPTH"),
    (["--packs", "--blocks", "1=0,5,0"], "op 1, @main .* has columns of 32, which blocks of 5"),
    (["--packs", "--blocks", "9=0,4,0"], "no op has the number 9; 2 may be packed"),
    (["--packs", "--blocks", "1=0,4,0", "--blocks", "1=0,8,0"], "--blocks: several are of one op"),
    (["--packs", "--rows", "-1"], "rows=-1 is out of range"),
    (["--packs", "--seconds", "0"], "seconds=0: give more than 0"),
    (["--packs", "--place", "1"], "--packs is of a whole module, without --flavor and --place"),
    (["--packs", "--db", "sqlite://"], "packs are made here and not stored"),
    (["other.mlir", "--packs"], "packs are of one module"),
    (["--channels", "8"], "--channels is for --packs"),
    (["--packs", "--accuracy", "strict"], "--accuracy strict: packed scripts use direct loops"),
    (["--flavor", "iree", "--plan", "plan.json", "--accuracy", "strict"],
     "--accuracy: the plan sets it; leave it out"),
    (["--flavor", "iree", "--plan", "p", "--target", "cpu:vax"], "--target: the plan sets it"),
    (["--packs", "--target", "cpu:znver1"], "target 'cpu:znver1'"),
])  # fmt: skip
def test_options_that_contradict_are_one_line(cli, layers, options, message) -> None:
    assert re.match(f"tilewise: {message}", cli("script", layers, *options).error())


def test_an_accuracy_is_of_a_module_that_says_none(cli: Cli, model: str) -> None:
    refused, missing = (cli("script", one, "--accuracy", "strict") for one in (PROBLEM, model))
    assert "is of MODEL.mlir; a problem says it itself, as " in refused.error()
    assert "init=accumulate,accuracy=strict is stored" in missing.error(3)


@pytest.mark.parametrize(("way", "given"), [
    *(("packs", one) for one in ("--run", "--trials=3", "--seed=1", "--cache=cold")),
    ("native", "--channels=0"),
])  # fmt: skip
def test_an_output_takes_only_its_own_options(cli: Cli, layers: str, way: str, given: str) -> None:
    said = cli("model", layers, "--as", way, given).error()
    assert f"{given.partition('=')[0]} is not for --as {way}" in said


def test_a_module_without_ops_that_can_be_packed_is_missing(cli: Cli, tmp_path: Path) -> None:
    path = written(tmp_path / "model.mlir", networks.products(3, (5, 7)).decode())
    assert "has no op that can be packed; @main" in cli("script", path, "--packs").error(3)
