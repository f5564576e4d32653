"""What a command leaves with: a code for each kind of end, and one line for each error."""

import errno
import gzip
import itertools
import json
import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli, Ran, written
from tilewise.cli.command import Command
from tilewise.cli.commands import doctor
from tilewise.errors import BadInputError, MissingError, TilewiseError
from tilewise.fetch.folder import file_errors
from tilewise.kernels.errors import CompilerError, LoweringError, ProblemError, TargetError
from tilewise.search.errors import BudgetError, RunnerError
from tilewise.service.jobs import lease

GOOD = "matmul:m=24,n=40,k=16,dtype=f32"
RANGE = "matmul:m=1..6,n=20,k=8,dtype=f32"
SCHEDULER = "tcp://127.0.0.1:1"
DRIVER = ["driver", "--scheduler", SCHEDULER]


@pytest.mark.parametrize(("arguments", "says"), [
    (["tune", "gemm:m=1"], "unknown operation 'gemm'"),
    (["tune", "conv3d:n=1,d=8"], "conv3d: h is missing"),
    (["tune", "attention:q=8"], "attention is several problems, not one: tune its products"),
    (["tune", "matmul:m=1,n=2,k=3,dtype=f32,x=1"], "unknown key 'x'"),
    (["tune", "matmul:m=2000000,n=2000000,k=3,dtype=f32"], "this machine has"),
    (["tune", "nonsense"], "is not a problem"), (["tune", GOOD, "--trials", "0"], "trials=0"),
    (["show", GOOD, "--trials", "4"], "works only with --predict"),
    (["show", GOOD, "--trials", "4", "--predict"], "give --server URL"),
    (["tune", GOOD, "--sampler", "magic"], "magic"), (["tune", GOOD, "--spread", "0"], "spread=0"),
    (["tune", GOOD, "--spread", "2"], "give --server URL"),
    (["tune", GOOD, "--target", "cpu:z80"], "this machine is"),
    (["tune", GOOD, "--target", "gpu"], "neither 'host' nor"),
    (["tune", GOOD, "--db", "sqlite:////x.db", "--server", "http://x"], "not both"),
    (["script", GOOD, "--result", "l2"], "--result is for --flavor air"),
    (["script", GOOD, "--flavor", "air", "--db", "sqlite:////x.db"], "needs no database"),
    (["script", GOOD, "--flavor", "air", "--target", "cpu:znver4"], "declared memories"),
    (["script", GOOD, "--flavor", "air", "--l1-bytes", "0"], "l1_bytes=0"),
    (["script", GOOD, "--flavor", "air", "--l1-bytes", "8"], "declare more"),
    (["asm", RANGE], "matmul: m='1..6' is a range; give one size here"),
    (["serve", "--workers", "-1"], "workers=-1"),
    (["serve", "--workers", "9" * 30], "is out of range; give 0 to 64"),
    (["serve", "--port", "65536"], "port=65536 is out of range; give 0 to 65535"),
    (["serve", "--port", "http"], "invalid int value: 'http'"),
    (["serve", "--host", "192.0.2.1"], "host='192.0.2.1' is not an address of this machine"),
    (["serve", "--host", "no-such-host.invalid"], "is not an address of this machine"),
    (["serve", "--host", ""], "host='' is not an address"),
    (["serve", "--host", "\udcff"], r"host='\udcff'"),
    (["serve", "--port", "0", "--db", "postgresql://host:port/x"], "is not a database URL"),
    (["worker"], "give --scheduler tcp://HOST:PORT"),
    (["worker", "--scheduler", "gopher://x"], "write tcp://HOST:PORT or tls://HOST:PORT"),
    (["driver"], "give --scheduler tcp://HOST:PORT"), (DRIVER, "give --service URL"),
    ([*DRIVER, "--service", "x"], "write http://HOST:PORT"),
    ([*DRIVER, "--service", "http://x", "--db", "x"], "not a database"),
    (["scheduler", "--port", "99999"], "port=99999 is out of range"),
    (["top", "--once"], "name a service"),
    *((["top", "--server", "http://h:9", "--interval", text], f"--interval '{text}'")
      for text in ("0", "often", "nan")),
    (["db", "check", "--vacuum"], "db check takes no --vacuum"),
    (["db", "upgrade", "--keep-samples", "9"], "db upgrade takes no --keep-samples"),
    (["token", "list", "--days", "1"], "token list takes no --days"),
    (["compare", "a", "b", "--seconds", "9"], "--seconds is for --retime"),
    (["plot", "7", "-o", "x.svg", "--target", "gpu"], "--target is for problems"),
    (["predictor", "evaluate", "-o", "x"], "--output is for predictor train"),
    *(([command, "x", "-o", "y", "--trials", "9"], "--trials is for --tune-missing")
      for command in ("fetch", "library")),
    (["db", "drop"], "drop"), (["db", "prune", "--older-than", "nan"], "older-than"),
    (["db", "prune", "--keep-samples", "2"], "keep-samples"), (["fly"], "fly"), ([], "COMMAND"),
], ids=lambda value: ascii(value)[:60])  # fmt: skip
def test_exit_2_with_one_line(cli, tmp_path, monkeypatch, arguments: list[str], says: str) -> None:
    for name in ("TILEWISE_SCHEDULER", "TILEWISE_SERVICE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert says in cli(*arguments).error()
    assert not (tmp_path / "results.db").exists()


def test_a_taken_port_and_tls_without_certificates_are_exit_1(cli: Cli, tmp_path: Path) -> None:
    ran = cli("scheduler", "--port", "0", "--tls")
    assert ran.code == 1 and "check your TLS configuration" in ran.err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = cli("serve", "--port", str(port))
    said = f"port={port} of 127.0.0.1 is taken; give another, or 0 for one that is free"
    assert ran == Ran(1, "", f"tilewise: {said}\n")
    assert not (tmp_path / "results.db").exists()


OBJECTS = [("kernel", f"--format={kind}") for kind in ("object", "bitcode", "c-header")]


@pytest.mark.parametrize(("problem", "command"), [
    *((GOOD, (name,)) for name in ("show", "trials", "script", "kernel", "asm")),
    *((GOOD, command) for command in OBJECTS),
    *((RANGE, command) for command in (("show",), ("script",), *OBJECTS)),
])  # fmt: skip
def test_exit_3_when_nothing_is_stored(cli, tmp_path, monkeypatch, problem, command) -> None:
    monkeypatch.chdir(tmp_path)
    said = "tilewise tune makes one" if command[0] != "trials" else "stored"
    assert said in cli(*command, problem).error(3)
    assert not list(tmp_path.glob("*.[oh]")) and not list(tmp_path.glob("*.bc"))
    ran = cli(*command, problem, "--db", f"sqlite:///{tmp_path}/typo/x.db")
    assert (ran.code, ran.out) == (3, "") and "does not exist" in ran.err
    assert not (tmp_path / "typo").exists(), "reading makes no database"


def test_streams_that_are_closed_or_full(tmp_path: Path) -> None:
    create = f"token create ci --scope read --db sqlite:///{tmp_path}/x.db 2>&-"
    for code, given in ((None, "doctor --help >/dev/full"), (1, "doctor --help >&-"),
                        (0, create), (0, "import - <&-"), (2, "fly >/dev/full")):  # fmt: skip
        command = f"{sys.executable} -m tilewise {given}"
        done = subprocess.run(["sh", "-c", command], check=False, stderr=subprocess.PIPE, text=True)
        assert code in (None, done.returncode) and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["tune", "show", "trials"])
def test_a_database_of_another_version_is_refused_and_left_alone(cli, tmp_path, command) -> None:
    assert cli("db", "upgrade").code == 0
    path = tmp_path / "results.db"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999_future'")
    before = path.read_bytes()
    assert "9999_future" in assert_refused(cli(command, GOOD), command)
    assert path.read_bytes() == before


def test_a_search_that_cannot_run_ends_in_time(cli, tmp_path, monkeypatch) -> None:
    assert cli("db", "upgrade").code == 0
    url = f"sqlite:///file:{tmp_path / 'results.db'}?mode=ro&uri=true"
    assert "read-only" in cli("tune", GOOD, "--db", url).error(1)
    monkeypatch.setattr(lease, "claim_one", lambda *_: None)
    said = cli("tune", GOOD, "--seconds", "0.01").error(1)
    assert "job 1, run by another process, has not ended" in said


@pytest.mark.parametrize(("error", "code", "says"), [
    (TilewiseError("no answer"), 1, "no answer"),
    (BadInputError("no such thing"), 2, "no such thing"),
    (MissingError("nothing is stored"), 3, "nothing is stored"),
    (ProblemError("m=0 is out of range", "m"), 2, "m=0 is out of range"),
    (TargetError("target 'gpu'"), 2, "target 'gpu'"), (LoweringError("x"), 1, "x"),
    (CompilerError("refused"), 1, "refused"),
    (BudgetError("trials=0", "trials"), 2, "trials=0"),
    (RunnerError("the child cannot be set up"), 1, "the child cannot be set up"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (OSError(errno.ENOENT, "why"), 2, "cannot write out: why"),
    (OSError(errno.ENOSPC, "why"), 1, "cannot write out: why"),
    (BadInputError("a\nb\r\n\tc"), 2, "a b c"), (BadInputError("\x1b[2J\x07"), 2, r"\x1b[2J\x07"),
    (BadInputError("\ud800\udcff"), 2, r"\ud800\udcff"),
    (BadInputError("\u202e\u2028x"), 2, r"\u202e x"), (BadInputError("é ∞"), 2, "é ∞"),
], ids=lambda value: ascii(value)[:40])  # fmt: skip
def test_every_end_has_its_code_and_one_line(cli, monkeypatch, error, code, says) -> None:
    def fail(_options: object) -> None:
        """Fail while a file is written."""
        with file_errors("write", "out"):
            raise error

    monkeypatch.setattr(doctor, "COMMANDS", (Command("doctor", fail),))
    assert cli("doctor") == Ran(code, "", f"tilewise: {says}\n")
    typed = cli("doctor", f"x{error}")
    assert typed.err.count("\n") == 1 and typed.err[:-1].isprintable()


@pytest.mark.parametrize(
    ("name", "code", "said"), [("SIGTERM", 143, ""), ("SIGINT", 130, "tilewise: interrupted\n")]
)
def test_a_process_that_is_interrupted_says_so_to_its_shell(name, code, said) -> None:
    program = """
import runpy, signal, sys
from tilewise.cli.command import Command
from tilewise.cli.commands import doctor as commands

def doctor(_options):
    "Wait for Ctrl-C."
    signal.raise_signal(signal.SIGINT)

commands.COMMANDS = (Command("doctor", doctor),)
sys.argv = ["tilewise", "doctor"]
runpy.run_module("tilewise", run_name="__main__")
"""
    command = [sys.executable, "-c", program.replace("SIGINT", name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


OBJECT = {"op": "matmul", "m": 24, "n": 40, "k": 16, "dtype": "f32"}
PADDED = "conv2d:n=1,h=1,w=1,ci=1,co=1,kh=1,kw=1,stride=25000,pad=25000,dtype=f32"
AIR = "matmul:m=64,n=64,k=128,dtype=i32"
# A byte that is no UTF-8 reaches Python's arguments as a lone surrogate.
TEXTS = ["", "\0", "\udcff", "\udced\udca0\udc80", "\x1b[2J", "a\nb", "\u202e", "\u2028", "é",
         "x" * 100_000, "9" * 5000, "{" * 5000, "-", "%s", "%00"]  # fmt: skip
SCRIPT = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    transform.yield
  }
}
"""


def assert_refused(ran: Ran, given: object) -> str:
    """Assert that a command ended with code 2 and one line that a terminal only shows."""
    assert (ran.code, ran.out) == (2, ""), (ascii(given)[:80], ran.code, ran.err[-500:])
    assert ran.err.count("\n") == 1 and ran.err[:-1].isprintable(), ascii(ran.err)
    assert len(ran.err) < 3000
    return ran.err


COMMANDS = ("tune", "show", "script", "kernel", "asm", "trials")


@pytest.mark.full
def test_a_problem_and_a_target(cli: Cli, tmp_path: Path) -> None:
    """Six commands and seven forms: each command takes each form; so for targets."""
    suite = written(tmp_path / "suite.json", {"problems": [GOOD]})
    aimed = itertools.cycle([*((command, GOOD) for command in COMMANDS), ("bench", suite)])
    commands = itertools.cycle(COMMANDS)
    for text in TEXTS:
        problems = [text, f"matmul:{text}=1", f"{GOOD},{text}=1", f"{GOOD},epilogue={text}x",
                    json.dumps({"op": text}), json.dumps(OBJECT | {f"{text}x": 1}),
                    json.dumps(OBJECT | {"m": text})]  # fmt: skip
        for problem, command in zip(problems, commands, strict=False):
            assert_refused(cli(command, "--", problem), (command, problem))
        targets = (text, f"cpu:{text}, ", f"cpu:znver4,threads={text}")
        for target, given in zip(targets, aimed, strict=False):
            assert_refused(cli(*given, f"--target={target}"), (given, target))


@pytest.mark.parametrize("arguments", [
    *(("tune", GOOD, f"--trials={value}") for value in ("9" * 5000, "9" * 30, "1e3", "-1", "")),
    *(("tune", GOOD, f"--seconds={value}") for value in ("nan", "inf", "1e400", "-1", "0")),
    *(("tune", GOOD, f"--seed={value}") for value in ("9" * 30, "-1", "0.5", str(2**32))),
    *(("tune", GOOD, f"--{name}=\udcff\n") for name in ("sampler", "cache")),
    *(("script", GOOD, f"--flavor={value}") for value in ("\udcff", "x" * 5000)),
    *(("trials", GOOD, f"--format={value}") for value in ("\udcff", "")),
    *(("script", AIR, "--flavor=air", f"--l1-bytes={value}") for value in ("9" * 40, "-1", "")),
    *(("script", AIR, "--flavor=air", f"--l2-bytes={2**80}") for _ in "1"),
    *(("bench", "SUITE", f"--{name}={value}") for name, value in
      (("trials", "9" * 30), ("seed", "-1"), ("peers", "\udcff"), ("peers", "x" * 5000))),
    *((f"--{text}",) for text in TEXTS if text),
    *(("db", text) for text in TEXTS),
], ids=lambda arguments: ascii(" ".join(arguments))[:40])  # fmt: skip
def test_an_option(cli: Cli, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    suite = written(tmp_path / "suite.json", {"problems": [GOOD]})
    assert_refused(cli(*(suite if one == "SUITE" else one for one in arguments)), arguments)


@pytest.mark.parametrize("command", [("show", GOOD), ("db", "check"), ("db", "upgrade")])
def test_a_database(cli: Cli, tmp_path: Path, command: tuple[str, str]) -> None:
    (tmp_path / "text.db").write_text("no database, but long enough to be looked at" * 50)
    for url in ("postgresql://host:port/x", "postgresql://host:99999/x", "mysql://host/x",
                "nonsense", "sqlite://", f"sqlite:///{tmp_path}", f"sqlite:///{tmp_path}/text.db",
                "sqlite:///\udcff", "sqlite:///%00", "sqlite:///" + "x" * 5000,
                "sqlite:///x.db?timeout=long", "sqlite:///x.db?mode=ro"):  # fmt: skip
        ran = cli(*command, "--db", url)
        assert_refused(ran, url)
        assert "secret" not in cli(*command, "--db", url.replace("host", "u:secret@host")).err


@pytest.mark.parametrize("command", ["show", "script", "kernel", "trials", "tune"])
def test_a_server(cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    for url in ("fake", "http://h:port", "http://\udcff", "http://\x1b[2J", "http://" + "x" * 5000):
        assert_refused(cli(command, GOOD, "--server", url), url)
        monkeypatch.setenv("TILEWISE_SERVER", url)
        assert_refused(cli(command, GOOD), url)
        monkeypatch.delenv("TILEWISE_SERVER")
    for text in ("\udcff", f"{GOOD},\udcff"):
        assert_refused(cli(command, text, "--server", "http://127.0.0.1:9"), text)


def test_a_file_that_is_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    script = written(tmp_path / "script.mlir", SCRIPT)
    paths = [str(tmp_path), str(tmp_path / "binary"), str(tmp_path / "none"), "", "/dev/zero",
             f"{script}/x", "\udcff", "\ud800", "a\0b", "a\nb", "x" * 5000]  # fmt: skip
    for path in paths:
        assert_refused(cli("verify", path), path)
        assert_refused(cli("verify", script, "--payload", path or " "), path)
        assert_refused(cli("bench", path), path)
        assert_refused(cli("compare", path, path), path)
        assert_refused(cli("predictor", "evaluate", "--", path), path)
        assert path in ("", "a\0b") or assert_refused(
            cli("fetch", script, "-o", "x", "--frozen", "--lock", path), path
        )
    (tmp_path / "list.json.gz").write_bytes(gzip.compress(b"[1]"))
    assert_refused(cli("predictor", "evaluate", str(tmp_path)), "a list")
    assert "does not exist" in cli("predictor", "evaluate").error(3)
    assert_refused(cli("verify", script, "--problem", "matmul:\udcff=1"), "problem")


def test_a_file_that_is_written(cli: Cli, tmp_path: Path) -> None:
    unwritable = [str(tmp_path), f"{tmp_path}/none/x", "", "\ud800", "a\0b", "/proc/none/\x1b",
                  f"{tmp_path}/{'x' * 300}", "x/" * 3000 + "x"]  # fmt: skip
    for path in unwritable:
        assert_refused(cli("script", AIR, "--flavor", "air", "-o", path), path)
    ran = cli("script", AIR, "--flavor", "air", "-o", "/dev/full")
    assert (ran.code, ran.err) == (1, "tilewise: cannot write /dev/full: No space left on device\n")

    suite = written(tmp_path / "suite.json", {"problems": [GOOD]})
    for path in filter(None, unwritable):
        for option in ("-o", "--out", "--output", "--plot"):
            assert_refused(cli("bench", suite, option, path), path)
    file = written(tmp_path / "file", "")
    for command in ("fetch", "library"):
        given = (command, suite, "-o", file, "--tune-missing", "--trials", "1")
        assert "cannot write" in assert_refused(cli(*given), file)


@pytest.mark.parametrize(("name", "value"), [
    *(("TILEWISE_LOG_LEVEL", value) for value in ("bogus", "\udcff", "x" * 5000)),
    *(("TILEWISE_BODY_BYTES", value) for value in ("-1", "1e3", "9" * 5000, "\udcff", "many")),
    *(("TILEWISE_DB", value) for value in ("\udcff", "postgresql://host:port/x", "x" * 5000)),
    *(("TILEWISE_SERVER", value) for value in ("\udcff", "http://h:port")),
    ("TILEWISE_SCHEDULER", "tcp://nowhere"),
], ids=lambda text: ascii(text)[:30])  # fmt: skip
def test_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    command = ("worker",) if name == "TILEWISE_SCHEDULER" else ("show", GOOD)
    assert name != "TILEWISE_SCHEDULER" or f"{name}='{value}'" in cli(*command).err
    assert_refused(cli(*command), value)


def test_a_cache_folder_that_cannot_be(cli, tmp_path, monkeypatch) -> None:
    file = tmp_path / "cache"
    file.write_text("a file")
    for folder in (file, tmp_path / ("x" * 300)):
        monkeypatch.setenv("TILEWISE_CACHE_DIR", os.fspath(folder))
        assert_refused(cli("tune", GOOD, "--trials", "1"), folder)
