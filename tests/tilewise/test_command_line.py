import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tilewise.conftest import PROBLEM, Cli
from tilewise.cli.parser import GROUPS, all_commands, make_parser

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


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("tun",), "tune"),
        (("verfy", "x.mlir"), "verify"),
        (("trails", PROBLEM), "trials"),
        (("tune", PROBLEM, "--trails", "5"), "--trials"),
        (("tune", PROBLEM, "--sedd=1"), "--seed"),
        (("fetch", "problems.txt", "--ouput", "scripts"), "--output"),
        (("db", "check", "--dbb", "x"), "--db"),
        (("--versoin",), "--version"),
        (("tune", "matmull:m=8,n=8,k=8,dtype=f32"), "matmul"),
        (("tune", "conv2:n=1"), "conv2d"),
        (("tune", "matmul:m=8,n=8,k=8,dtyp=f32"), "dtype"),
        (("tune", "matmul:m=8,n=8,k=8,dtype=f32,transposeb"), "transpose_b"),
        (("tune", "matmul:M=8,n=8,k=8,dtype=f32"), "m"),
        (("show", '{"op": "conv2d", "stridee": 2}'), "stride"),
    ],
)
def test_what_is_mistyped_is_answered_with_what_may_be_meant(
    cli: Cli, typed: tuple[str, ...], meant: str
) -> None:
    ran = cli(*typed)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert f"(did you mean {meant}?)" in ran.err


@pytest.mark.parametrize("typed", [("qqqqq",), ("tune", PROBLEM, "--qqqqq"), ("tune", "qq:q=1")])
def test_nothing_is_suggested_for_what_is_like_nothing(cli: Cli, typed: tuple[str, ...]) -> None:
    ran = cli(*typed)
    assert ran.code == 2 and "did you mean" not in ran.err and "q" in ran.err


@pytest.mark.parametrize("option", ["-o", "--output", "--out"])
def test_bench_takes_the_option_for_output_that_others_have(
    cli: Cli, tmp_path: Path, option: str
) -> None:
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"problems": [PROBLEM]}))
    ran = cli("bench", str(suite), option, str(tmp_path))
    assert ran.code == 2 and "it is a folder" in ran.err
    assert "--out " not in cli("bench", "--help").out


def test_help_says_where_results_are_stored(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "100%s"))
    text = "".join(cli("show", "--help").out.split())
    assert f"TILEWISE_DB,or{tmp_path}/100%s/tilewise/tilewise.db" in text
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME")
    assert "~/.local/share/tilewise/tilewise.db" in cli("show", "--help").out
    monkeypatch.delenv("TILEWISE_DB")
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    found = json.loads(cli("doctor", "--json").out)
    assert found["database"] == f"sqlite:///{tmp_path}/.local/share/tilewise/tilewise.db"
    assert found["cache"] == str(tmp_path / "cache")


BASH = """
COMP_LINE=$1; COMP_POINT=${#1}; COMP_TYPE=9; COMP_WORDBREAKS=$' \\t\\n\\"\\'><=;|&(:'
_python_argcomplete tilewise; printf "%s\\n" "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="this machine has no bash")
@pytest.mark.parametrize(
    ("typed", "offered", "withheld"),
    [
        ("", {*NAMES}, set()),
        ("tu", {"tune"}, {"show"}),
        (f"tune {PROBLEM} --tr", {"--trials"}, {"--seed"}),
        (f"script {PROBLEM} --flavor ", {"cpu", "air", "iree", "iree-spec"}, {"--json"}),
        ("db ", {"upgrade", "check", "prune"}, set()),
        ("verify ", {"--payload", "--json"}, set()),
        ("verify x.mlir --payload pay", {"payload.mlir"}, set()),
        ("bench suite.json --o", {"--output"}, {"--out"}),
    ],
)
def test_bash_completes_commands_options_choices_and_files(
    cli: Cli, tmp_path: Path, typed: str, offered: set[str], withheld: set[str]
) -> None:
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
    found = json.loads(cli("completion", "zsh", "--json").out)
    assert found["shell"] == "zsh" and found["script"].startswith("#compdef tilewise")
    ran = cli("completion", "tcsh")
    assert ran.code == 2 and "'bash', 'zsh', 'fish'" in ran.err
