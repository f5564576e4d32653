"""From search to script, kernel and library: problems and ranges, here and at a service."""

import ast
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service import fakes
from tests.service.processes import ROOT
from tests.short_timings import python_path
from tests.tilewise.conftest import Cli, store_result, written
from tilewise import Client, MissingError
from tilewise.cli.commands import kernels
from tilewise.client import Event, JobEnded, PhaseReached, TrialEnded
from tilewise.kernels.native.objects.object_files import Elf
from tilewise.kernels.schedule import Schedule
from tilewise.kernels.system.children import child_environment
from tilewise.kernels.target import detect

JOB = "matmul:m=70,n=90,k=50,dtype=f32"
CONV = "conv2d:n=1,h=9,w=11,ci=8,co=24,kh=3,kw=3,stride=2,pad=1,dtype=f32,bias,epilogue=relu"


@pytest.mark.parametrize("problem", [JOB, pytest.param(CONV, marks=pytest.mark.full)])
def test_the_main_job_on_this_machine(cli: Cli, tmp_path: Path, problem: str) -> None:
    result = cli("tune", problem, "--trials", "2", "--peers", "--json").json
    assert (result["problem"], len(result["key"]), result["trials"]["asked"]) == (problem, 64, 2)
    assert sum(result["trials"][k] for k in ("timed", "pruned", "failed")) == 2
    best = result["best"]
    assert best["hash"] == Schedule.from_json(best["steps"]).hash
    assert best["interval"][0] <= best["gflops"] <= best["interval"][1]
    assert 0 < best["peak_fraction"] < 1.1
    assert ("openblas" in result["peers"]) == problem.startswith("matmul")
    proof = result["proof"]
    assert proof["applied"] and proof["executed"] and proof["max_error"] <= proof["tolerance"]
    assert proof["mlir"].startswith("iree-base-compiler ")

    assert cli("show", problem, "--json").json == result
    text = cli("show", problem).out
    assert best["hash"] in text and "proven" in text

    out = tmp_path / "script.mlir"
    assert cli("script", problem, "-o", str(out)).code == 0
    assert "@__transform_main" in out.read_text() and problem in out.read_text()
    with_payload = cli("script", problem, "--with-payload").out
    assert "func.func" in with_payload and "@__transform_main" in with_payload

    rows = list(csv.DictReader(cli("trials", problem, "--format", "csv").out.splitlines()))
    assert len(rows) == 2
    assert cli("trials", problem, "--json").json[0]["number"] == 0
    assert len(cli("trials", problem).out.splitlines()) == 3

    if result["best"]["quality"] == "noisy":  # beside busy neighbours it is measured again
        return
    again = cli("tune", problem, "--trials", "2", "--peers", "--json")
    assert "answered from the store" in again.err
    assert json.loads(again.out) == result


@pytest.mark.full
def test_a_kernel_for_two_threads(cli: Cli, tmp_path: Path) -> None:
    target = detect().with_threads(2).canonical
    problem = "matmul:m=96,n=160,k=64,dtype=f32"
    if detect().cores < 2:
        assert cli("tune", problem, "--target", target).code == 2
        return
    result = cli("tune", problem, "--target", target, "--trials", "8", "--peers", "--json").json
    assert result["target"] == target and result["proof"]["executed"]
    assert result["peers"]["openblas"]["gflops"] > 0
    assert cli("show", problem).code == 3, "another target's result is not this one's"
    assert "on one thread" in cli("show", problem, "--target", target).out

    out = tmp_path / "kernel.py"
    assert cli("kernel", problem, "--target", target, "-o", str(out)).code == 0
    done = subprocess.run([sys.executable, str(out)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"OK {problem}")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """`tilewise serve` as users start it, with workers that search for real."""
    database = f"sqlite:///{tmp_path / 'service.db'}"
    command = [sys.executable, "-m", "tilewise", "serve", "--port", "0", "--db", database]
    env = child_environment(PYTHONPATH=python_path(ROOT))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            lines = iter(process.stderr.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://[\d.:]+", line)))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield url, process
        finally:
            process.terminate()


@pytest.mark.full
def test_the_main_job_through_a_service(service, cli: Cli) -> None:
    url, process = service
    with Client(url) as client:
        with pytest.raises(MissingError):
            client.schedule(JOB)
        seen: list[Event] = []
        result = client.tune(JOB, seen.append, trials=6)
        trials = [event.trial.number for event in seen if isinstance(event, TrialEnded)]
        assert trials == list(range(6))
        assert isinstance(seen[-1], JobEnded) and seen[-1].job.state == "done"
        phases = [event.phase.name for event in seen if isinstance(event, PhaseReached)]
        assert {"search", "proof", "finals"} <= set(phases)
        assert result.proof and result.proof.executed
        assert "@__transform_main" in (client.script(JOB).text or "")
    assert cli("show", JOB, "--server", url, "--json").json["best"] == result.document["best"]
    assert len(cli("trials", JOB, "--server", url).out.splitlines()) == 7
    exported = cli("trials", JOB, "--server", url, "--format", "t4").json
    assert len(exported["results"]) == 6
    assert all(r["times"]["runtimes"] for r in exported["results"] if r["correctness"])
    assert "@__transform_main" in cli("script", JOB, "--server", url).out
    assert cli("tune", "gemm:x", "--server", url).code == 2
    assert cli("show", CONV, "--server", url).code == 3
    made = cli("tune", RANGE, "--trials", "2", "--json", "--server", url).json
    assert cli("show", RANGE, "--json", "--server", url).json["variants"] == made["variants"]
    resident = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    assert resident * os.sysconf("SC_PAGE_SIZE") < 300 << 20


RANGE = "matmul:m=4..6,n=20,k=8,dtype=f32"
ONE = RANGE.replace("4..6", "5")
MODEL = """
func.func @main(%a: tensor<?x8xf32>, %b: tensor<8x20xf32>) -> tensor<?x20xf32> {
  %zero = arith.constant 0.0 : f32
  %first = arith.constant 0 : index
  %rows = tensor.dim %a, %first : tensor<?x8xf32>
  %c = tensor.empty(%rows) : tensor<?x20xf32>
  %f = linalg.fill ins(%zero : f32) outs(%c : tensor<?x20xf32>) -> tensor<?x20xf32>
  %r = linalg.matmul ins(%a, %b : tensor<?x8xf32>, tensor<8x20xf32>)
      outs(%f : tensor<?x20xf32>) -> tensor<?x20xf32>
  return %r : tensor<?x20xf32>
}
"""


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_range_is_tuned_and_answers_for_its_sizes(cli, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    tuned = cli("tune", RANGE, "--trials", "2", "--json").json
    assert tuned["problem"] == RANGE and tuned["samples"][-1]["size"] == 6
    assert cli("show", RANGE, "--json").json["variants"] == tuned["variants"]
    shown = cli("show", ONE, "--json").json
    served = next(at for first, last, at in tuned["spans"] if first <= 5 <= last)
    assert shown["best"]["hash"] == tuned["variants"][served]["hash"]
    made = cli("kernel", RANGE, "--format", "object", "--json").json
    assert made["symbol"].startswith("tilewise_matmul_m4to6_n20_k8_f32")
    assert made["proof"]["max_error"] <= made["proof"]["tolerance"]
    assert "int64_t m" in Path(made["header"]).read_text()
    listed = written(tmp_path / "problems.txt", RANGE)
    (kernel,) = cli("library", listed, "-o", "made", "--json").json["kernels"]
    assert (kernel["problem"], kernel["member"]) == (RANGE, "matmul_m4to6_n20_k8_f32.o")
    script = cli("script", RANGE, "--with-payload").out
    assert "m=4:" in script and "m=6:" in script and "%C: tensor<?x20xf32>" in script

    model = written(tmp_path / "model.mlir", MODEL)
    planned = cli("plan", model, "--dim", "0.0=5", "--layouts", "model", "--json")
    (node,) = planned.json["nodes"]
    assert f"takes its variant of {RANGE}" in planned.err, planned.err
    assert node["schedule"]["hash"] == shown["best"]["hash"]

    over = (model, "--dim", "0.0=4..6")
    ran = cli("model", *over, "--no-ops", "--json")
    made = ran.json
    assert "tunes" not in ran.err and made["right"], ran.err
    assert [(op["problem"], op["count"], op["replaced"]) for op in made["ops"]] == [(RANGE, 1, 1)]
    assert made["arguments"] == ["tensor<?x8xf32>", "tensor<8x20xf32>"]
    assert [(one["size"], one["inside"]) for one in made["sizes"]] == [
        ("0.0=3", False), ("0.0=4", True), ("0.0=5", True), ("0.0=6", True)
    ]  # fmt: skip
    for command in (("model", *over, "--as", "native"), ("model", *over, "--as", "packs")):
        refused = cli(*command)
        assert refused.code == 2 and refused.err == (
            "tilewise: dim 0.0 has a range; give one size, or make an IREE library by tilewise "
            "model --as iree --dim\n"
        )
    ran = cli("model", *over, "--as", "iree")  # so small an op may be left to IREE
    assert RANGE in ran.out + ran.err and ran.code in (0, 3), ran.err


PROBLEM = "matmul:m=40,n=50,k=30,dtype=f32,bias,epilogue=relu"
STEM = "matmul_m40_n50_k30_f32_bias_relu"
PROBLEMS = (PROBLEM, "matmul:m=8,n=16,k=24,dtype=i8,weights=constant")
NAMES = ["libtilewise.a", "manifest.json", "tilewise.h"]


@pytest.fixture
def stored(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store_result(database, monkeypatch, PROBLEM)


@pytest.mark.full
def test_the_kernel_runs_on_its_own(cli: Cli, stored: None, tmp_path: Path) -> None:
    out = tmp_path / "kernel.py"
    assert cli("kernel", PROBLEM, "-o", str(out)).code == 0
    text = out.read_text()
    assert cli("kernel", PROBLEM).out == text
    assert cli("kernel", PROBLEM, "--json").json == {"problem": PROBLEM, "kernel": text}
    best = cli("show", PROBLEM, "--json").json["best"]
    docstring = ast.get_docstring(ast.parse(text))
    for reported in (PROBLEM, best["hash"], f"{best['gflops']:.1f} GFLOP/s", "C += A * B"):
        assert reported in docstring
    command = [sys.executable, "-I", str(out)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"OK {PROBLEM}"), done.stderr


def test_the_inner_loop_and_its_counts(cli: Cli, stored: None) -> None:
    text = cli("asm", PROBLEM).out
    for reported in ("inner loop", "multiply-adds", "stack references", "spills: "):
        assert reported in text
    reported = cli("asm", PROBLEM, "--json").json
    assert reported["problem"] == PROBLEM
    assert reported["fma"] > 0
    assert reported["counts"]["instructions"] > reported["fma"]


@pytest.fixture
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.full
@pytest.mark.parametrize("where", ["here", "there"])
def test_an_object_comes_with_its_header(where: str, cli, stored, server, in_a_folder) -> None:
    place = ("--server", server) if where == "there" else ()
    ran = cli("kernel", PROBLEM, "--format", "object", *place)
    assert ran.code == 0, ran.err
    assert "run between guard pages" in ran.out and f"{STEM}.o" in ran.out
    reported = cli("kernel", PROBLEM, "--format", "bitcode", "--json", *place).json
    assert (reported["bitcode"], reported["header"]) == (f"{STEM}.bc", f"{STEM}.h")
    assert reported["proof"]["max_error"] <= reported["proof"]["tolerance"]
    found = Elf.read((in_a_folder / f"{STEM}.o").read_bytes())
    assert reported["symbol"] in found.defined and not found.undefined
    assert (in_a_folder / f"{STEM}.bc").read_bytes()[:2] == b"BC"
    header = (in_a_folder / f"{STEM}.h").read_text()
    assert cli("kernel", PROBLEM, "--format", "c-header", *place).out == header
    assert f"int {reported['symbol']}_supported(void);" in header


def test_names_that_are_given(cli: Cli, stored: None, in_a_folder: Path) -> None:
    assert cli("kernel", PROBLEM, "--format", "object", "-o", "mine.obj").code == 0
    assert (in_a_folder / "mine.obj").exists() and (in_a_folder / "mine.h").exists()
    (in_a_folder / "taken.h").mkdir()
    for name, reported in (
        ("mine.h", "would be the header's name"),
        ("nowhere/mine.o", "there is no folder"),
        ("taken.o", "it is a folder"),
    ):
        assert reported in cli("kernel", PROBLEM, "--format", "object", "-o", name).error()
    assert not (in_a_folder / "taken.o").exists()


@pytest.fixture
def listed(database: str, tmp_path: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        for problem in PROBLEMS:
            store_result(database, patch, problem, fakes.direct_tune)
    path = tmp_path / "problems.txt"
    path.write_text(f"# mine\n{PROBLEMS[0]}  # the first\n\n{PROBLEMS[1]}\n{PROBLEMS[0]}\n")
    return str(path)


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
        content = (made[0] / manifest[part]["path"]).read_bytes()
        assert manifest[part]["sha256"] == hashlib.sha256(content).hexdigest()
    _check_members(made[0], manifest)
    _check_linked(made[0], [one["alias"] for one in manifest["kernels"]])


def _check_members(folder: Path, manifest: dict[str, list[dict[str, str]]]) -> None:
    ar = shutil.which("ar") or shutil.which("llvm-ar")
    for one in manifest["kernels"] if ar else ():
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
def test_what_is_not_stored_is_named_and_not_written(cli, listed, tmp_path, monkeypatch) -> None:
    absent = "matmul:m=3,n=3,k=3,dtype=f64"
    path = written(tmp_path / "more.txt", f"{PROBLEMS[0]}\n{absent}\n")
    ran = cli("library", path, "-o", str(tmp_path / "folder"))
    assert ran.code == 3 and ran.out == ""
    assert f"tilewise: {absent}: no schedule is stored" in ran.err
    assert "1 of 2 problems are not stored; --tune-missing" in ran.err
    assert not (tmp_path / "folder").exists()
    options = ("--tune-missing", "--trials", "2", "--json")
    ran = cli("library", path, "-o", str(tmp_path / "folder"), *options)
    assert [one["problem"] for one in ran.json["kernels"]] == [PROBLEMS[0], absent]
    monkeypatch.setattr(kernels, "_objects", lambda *_: pytest.fail("made for no folder"))
    assert "cannot write" in cli("library", path, "-o", path).error()
