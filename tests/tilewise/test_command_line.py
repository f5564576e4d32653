"""Help, suggestions, completion and options of commands; what they import."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.cases import some
from tests.service.plan_rows import wanted
from tests.tilewise.conftest import PROBLEM, Cli
from tilewise.cli.parser import GROUPS, all_commands, make_parser
from tilewise.search.networks.request import ModelOptions, ModelRequest, PlanOptions, PlanRequest
from tilewise.search.records import TuneOptions, TuneRequest
from tilewise.service.api.requests import JobRequest
from tilewise.service.db import models
from tilewise.service.jobs.model_jobs import Wanted
from tilewise.service.jobs.plans import PlanAssignment

NAMES = [command.name for command in all_commands()]


def test_help_has_every_command_in_a_group(cli: Cli) -> None:
    text = cli("--help").out
    for group, names in GROUPS.items():
        block = text.partition(f"\n{group}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in block.splitlines()] == list(names)
    assert sorted(NAMES) == sorted(name for names in GROUPS.values() for name in names)
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize("command", all_commands(), ids=lambda command: command.name)
def test_help_of_a_command_has_examples_that_can_be_typed(cli: Cli, command) -> None:
    assert command.examples, f"tilewise {command.name} has no example"
    text = cli(command.name, "--help").out
    for example in command.examples:
        assert f"\n  tilewise {example}\n" in text
        words = shlex.split(example)
        assert words[0] == command.name
        make_parser().parse_args(words)


@pytest.mark.parametrize(("typed", "meant"), [
    (("tun",), "tune"), (("verfy", "x.mlir"), "verify"), (("trails", PROBLEM), "trials"),
    (("tune", PROBLEM, "--trails", "5"), "--trials"), (("tune", PROBLEM, "--sedd=1"), "--seed"),
    (("fetch", "problems.txt", "--ouput", "scripts"), "--output"),
    (("db", "check", "--dbb", "x"), "--db"), (("--versoin",), "--version"),
    (("tune", "matmull:m=8,n=8,k=8,dtype=f32"), "matmul"), (("tune", "conv2:n=1"), "conv2d"),
    (("tune", "matmul:m=8,n=8,k=8,dtyp=f32"), "dtype"),
    (("tune", "matmul:m=8,n=8,k=8,dtype=f32,transposeb"), "transpose_b"),
    (("tune", "matmul:M=8,n=8,k=8,dtype=f32"), "m"),
    (("show", '{"op": "conv2d", "stridee": 2}'), "stride"), (("qqqqq",), None),
    (("tune", PROBLEM, "--qqqqq"), None), (("tune", "qq:q=1"), None),
])  # fmt: skip
def test_what_is_mistyped_is_answered_with_what_may_be_meant(cli, typed, meant) -> None:
    said = cli(*typed).error()
    assert (f"(did you mean {meant}?)" in said) if meant else "did you mean" not in said


def test_help_says_where_results_are_stored(cli, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "100%s"))
    text = "".join(cli("show", "--help").out.split())
    assert f"TILEWISE_DB,or{tmp_path}/100%s/tilewise/tilewise.db" in text
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME")
    assert "~/.local/share/tilewise/tilewise.db" in cli("show", "--help").out
    monkeypatch.delenv("TILEWISE_DB")
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    found = cli("doctor", "--json").json
    assert found["database"] == f"sqlite:///{tmp_path}/.local/share/tilewise/tilewise.db"
    assert found["cache"] == str(tmp_path / "cache")
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError))
    assert cli("doctor", "--json").json["database"].startswith("this user has no home folder")


BASH = """
COMP_LINE=$1; COMP_POINT=${#1}; COMP_TYPE=9; COMP_WORDBREAKS=$' \\t\\n\\"\\'><=;|&(:'
_python_argcomplete tilewise; printf "%s\\n" "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
@pytest.mark.parametrize(("typed", "offered", "withheld"), some([
    ("", {*NAMES}, set()), ("tu", {"tune"}, {"show"}),
    (f"tune {PROBLEM} --tr", {"--trials"}, {"--seed"}),
    (f"script {PROBLEM} --flavor ", {"cpu", "air", "iree", "iree-spec"}, {"--json"}),
    ("db ", {"upgrade", "check", "prune"}, set()), ("verify ", {"--payload", "--json"}, set()),
    ("verify x.mlir --payload pay", {"payload.mlir"}, set()),
    ("bench suite.json --o", {"--output"}, {"--out"}),
], of=3))  # fmt: skip
def test_bash_completes_commands_options_choices_and_files(cli, tmp_path, typed, offered, withheld):
    (tmp_path / "payload.mlir").touch()
    script = cli("completion", "bash").out
    done = subprocess.run(
        ["bash", "-c", script + BASH, "bash", f"tilewise {typed}"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    found = {*done.stdout.split()}
    assert found >= offered and not found & withheld


def test_each_shell_has_a_script(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "tilewise.fish"
    assert cli("completion", "fish", "-o", str(file)).out == ""
    assert "complete --command tilewise" in file.read_text()
    found = cli("completion", "zsh", "--json").json
    assert found["shell"] == "zsh" and found["script"].startswith("#compdef tilewise")
    ran = cli("completion", "tcsh")
    assert ran.code == 2 and "'bash', 'zsh', 'fish'" in ran.err


def test_fields_of_a_request_are_those_of_clients_jobs_the_api_and_the_command_line() -> None:
    names = [field.name for field in fields(TuneRequest)]
    assert list(TuneOptions.__annotations__) == names and {*names} <= {*dir(models.Job)}
    other = TuneRequest(7, 7.5, 7, "random", True, "cold", 7)
    body = JobRequest.model_validate({"problem": PROBLEM, **vars(other)})
    assert TuneRequest.of(body) == other
    typed = [f"--{name}={value}" for name, value in vars(other).items()
             if not isinstance(value, bool)]  # fmt: skip
    options = make_parser().parse_args(["tune", PROBLEM, "--peers", *typed])
    assert TuneRequest.of(options) == other

    body, options = JobRequest.model_validate({"problem": PROBLEM}), ["tune", PROBLEM]
    assert TuneRequest.of(body) == TuneRequest.of(make_parser().parse_args(options))
    assert TuneRequest.of(body) == TuneRequest(), "fields that are left out have their defaults"


DOCUMENT = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
OTHER = PlanRequest(layouts="model", name="a.mlir", target="cpu:znver4", trials=7, seed=8,
                    cache="cold", accuracy="strict")  # fmt: skip


def test_fields_of_models_and_plans_are_declared_once() -> None:
    for kind, names, path in ((ModelRequest, ModelOptions, "models"),
                              (PlanRequest, PlanOptions, "plans")):  # fmt: skip
        parameters = DOCUMENT["paths"][f"/v1/{path}"]["post"]["parameters"]
        queried = {one["name"] for one in parameters if one["in"] == "query"}
        assert {*vars(kind())} == {*names.__annotations__} == queried
    assert {*vars(OTHER)} <= {*dir(models.Plan), *dir(models.Job)}, "columns"
    again = {one.name for kind in (Wanted, PlanAssignment) for one in fields(kind)}
    assert not again & {*vars(OTHER)}
    typed = [f"--{name.replace('_', '-')}={value}" for name, value in vars(OTHER).items()
             if name != "name" and not isinstance(value, bool)]  # fmt: skip
    for command in (["plan", "a.mlir"], ["model", "a.mlir", "--as", "native"]):
        assert PlanRequest.of(make_parser().parse_args(command)) == PlanRequest()
        options = make_parser().parse_args([*command, *typed])
        assert replace(PlanRequest.of(options), name="a.mlir") == OTHER


def test_each_field_of_a_plan_makes_another_request() -> None:
    one = wanted("cpu:znver5")
    assert one.work == f"{'ab' * 32} all standard 4 0 hot one.mlir", "as in revision 0021"
    for name, default in vars(PlanRequest()).items():
        value = getattr(OTHER, name)
        value = value + type(value)(1) if value == default else value  # of a later field
        other = replace(one, request=replace(one.request, **{name: value}))
        assert other.digest != one.digest
        assert (other.work == one.work) == (name == "target"), "which has a column of its own"


HEAVY = ("alembic", "fastapi", "httpx", "iree", "numba", "numpy", "optuna", "rich", "uvicorn")
PROGRAM = f"""
import sys
from tilewise.cli import main
code = main(sys.argv[1:])
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.full
@pytest.mark.parametrize("command", ["show", "trials", "script"])
def test_an_answer_from_the_store_loads_nothing_heavy(command: str, tuned: str) -> None:
    arguments = [command, PROBLEM, "--db", tuned]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
