import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli, Ran

GOOD = "matmul:m=24,n=40,k=16,dtype=f32"
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


def assert_refused(ran: Ran, given: object) -> None:
    assert (ran.code, ran.out) == (2, ""), (ascii(given)[:80], ran.code, ran.err[-500:])
    assert ran.err.count("\n") == 1 and ran.err[:-1].isprintable(), ascii(ran.err)
    assert len(ran.err) < 3000


@pytest.mark.full
@pytest.mark.parametrize("command", ["tune", "show", "script", "kernel", "asm", "trials"])
def test_a_problem(cli: Cli, command: str) -> None:
    for text in TEXTS:
        problems = [text, f"matmul:{text}=1", f"{GOOD},{text}=1", f"{GOOD},epilogue={text}x",
                    json.dumps({"op": text}), json.dumps(OBJECT | {f"{text}x": 1}),
                    json.dumps(OBJECT | {"m": text})]  # fmt: skip
        for problem in problems:
            assert_refused(cli(command, "--", problem), problem)


@pytest.mark.full
@pytest.mark.parametrize("command", ["tune", "show", "script", "kernel", "asm", "trials", "bench"])
def test_a_target(cli: Cli, tmp_path: Path, command: str) -> None:
    what = written(tmp_path, {"problems": [GOOD]}) if command == "bench" else GOOD
    for text in TEXTS:
        for target in (text, f"cpu:{text}, ", f"cpu:znver4,threads={text}"):
            assert_refused(cli(command, what, f"--target={target}"), target)


@pytest.mark.parametrize(
    "arguments",
    [
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
    ],
    ids=lambda arguments: ascii(" ".join(arguments))[:40],
)  # fmt: skip
def test_an_option(cli: Cli, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    suite = written(tmp_path, {"problems": [GOOD]})
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
    for url in ("fake", "http://", "http://h:port", "http://h:99999", "http://[::1",
                "http://a..b", "http://\udcff", "http://xn--/", "http://\x1b[2J",
                "http://" + "x" * 5000):  # fmt: skip
        assert_refused(cli(command, GOOD, "--server", url), url)
        monkeypatch.setenv("TILEWISE_SERVER", url)
        assert_refused(cli(command, GOOD), url)
        monkeypatch.delenv("TILEWISE_SERVER")
    for text in ("\udcff", f"{GOOD},\udcff"):
        assert_refused(cli(command, text, "--server", "http://127.0.0.1:9"), text)


def test_a_file_that_is_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    (tmp_path / "script.mlir").write_text(SCRIPT)
    script = str(tmp_path / "script.mlir")
    paths = [str(tmp_path), str(tmp_path / "binary"), str(tmp_path / "none"), "", "/dev/zero",
             f"{script}/x", "\udcff", "\ud800", "a\0b", "a\nb", "x" * 5000]  # fmt: skip
    for path in paths:
        assert_refused(cli("verify", path), path)
        assert_refused(cli("verify", script, "--payload", path or " "), path)
        assert_refused(cli("bench", path), path)
    assert_refused(cli("verify", script, "--problem", "matmul:\udcff=1"), "problem")


def unwritable(folder: Path) -> list[str]:
    return [str(folder), f"{folder}/none/x", "", "\ud800", "a\0b", "/proc/none/\x1b",
            f"{folder}/{'x' * 300}", "x/" * 3000 + "x"]  # fmt: skip


def test_a_file_that_is_written(cli: Cli, tmp_path: Path) -> None:
    for path in unwritable(tmp_path):
        assert_refused(cli("script", AIR, "--flavor", "air", "-o", path), path)
    ran = cli("script", AIR, "--flavor", "air", "-o", "/dev/full")
    assert (ran.code, ran.err) == (1, "tilewise: cannot write /dev/full: No space left on device\n")


def test_a_report_that_is_written(cli: Cli, tmp_path: Path) -> None:
    suite = written(tmp_path, {"problems": [GOOD]})
    for path in filter(None, unwritable(tmp_path)):
        for option in ("--out", "--plot"):
            assert_refused(cli("bench", suite, option, path), path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("TILEWISE_LOG_LEVEL", value) for value in ("bogus", "\udcff", "x" * 5000)),
        *(("TILEWISE_BODY_BYTES", value) for value in ("-1", "1e3", "9" * 5000, "\udcff", "many")),
        *(("TILEWISE_DB", value) for value in ("\udcff", "postgresql://host:port/x", "x" * 5000)),
        *(("TILEWISE_SERVER", value) for value in ("\udcff", "http://h:port")),
    ],
    ids=lambda text: ascii(text)[:30],
)  # fmt: skip
def test_the_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert_refused(cli("show", GOOD), value)


@pytest.mark.parametrize("make", [lambda path: path.write_text("a file"), lambda path: None])
def test_a_cache_folder_that_cannot_be(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "cache"
    make(path)
    folder = path if path.exists() else path / ("x" * 300)
    monkeypatch.setenv("TILEWISE_CACHE_DIR", os.fspath(folder))
    assert_refused(cli("tune", GOOD, "--trials", "1"), folder)


def written(folder: Path, content: object) -> str:
    path = folder / "suite.json"
    path.write_text(json.dumps(content))
    return str(path)
