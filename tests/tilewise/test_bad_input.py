import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli

GOOD = "matmul:m=24,n=40,k=16,dtype=f32"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tune", "gemm:m=1"], "unknown operation 'gemm'"),
        (["tune", "matmul:m=1,n=2,k=3,dtype=f32,x=1"], "unknown key 'x'"),
        (["tune", "matmul:m=0,n=2,k=3,dtype=f32"], "m=0 is out of range"),
        (["tune", "matmul:m=2000000,n=2000000,k=3,dtype=f32"], "this machine has"),
        (["tune", "nonsense"], "is not a problem"),
        (["tune", GOOD, "--trials", "0"], "trials=0"),
        (["tune", GOOD, "--sampler", "magic"], "magic"),
        (["tune", GOOD, "--spread", "0"], "spread=0"),
        (["tune", GOOD, "--spread", "65"], "spread=65"),
        (["tune", GOOD, "--spread", "2"], "give --server URL"),
        (["tune", GOOD, "--target", "cpu:z80"], "this machine is"),
        (["tune", GOOD, "--target", "gpu"], "neither 'host' nor"),
        (["tune", GOOD, "--db", "sqlite:////x.db", "--server", "http://x"], "not both"),
        (["script", GOOD, "--result", "l2"], "--result is for --flavor air"),
        (["script", GOOD, "--flavor", "air", "--db", "sqlite:////x.db"], "needs no database"),
        (["script", GOOD, "--flavor", "air", "--target", "cpu:znver4"], "declared memories"),
        (["script", GOOD, "--flavor", "air", "--l1-bytes", "0"], "l1_bytes=0"),
        (["script", GOOD, "--flavor", "air", "--l1-bytes", "8"], "declare more"),
        (["serve", "--workers", "-1"], "workers=-1"),
        (["db", "drop"], "drop"),
        (["fly"], "fly"),
        ([], "COMMAND"),
    ],
)  # fmt: skip
def test_exit_2_with_one_line(cli: Cli, arguments: list[str], says: str) -> None:
    ran = cli(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert says in ran.err


@pytest.mark.parametrize("command", ["show", "script", "trials"])
def test_exit_3_when_nothing_is_stored(cli: Cli, command: str) -> None:
    ran = cli(command, GOOD)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err.count("\n") == 1
    assert "stored" in ran.err


@pytest.mark.parametrize("command", ["show", "script", "trials", "kernel"])
def test_reading_does_not_make_a_database(cli: Cli, tmp_path: Path, command: str) -> None:
    ran = cli(command, GOOD, "--db", f"sqlite:///{tmp_path}/typo/x.db")
    assert (ran.code, ran.out) == (3, "")
    assert "does not exist" in ran.err
    assert not (tmp_path / "typo").exists()


def test_an_output_that_cannot_be_written() -> None:
    for redirect in (">/dev/full", ">&-"):
        command = f"{sys.executable} -m tilewise doctor --help {redirect}"
        done = subprocess.run(["sh", "-c", command], check=False, stderr=subprocess.PIPE, text=True)
        assert "Traceback" not in done.stderr
    command = f"{sys.executable} -m tilewise db upgrade --db sqlite:////dev/null/x.db >/dev/full"
    done = subprocess.run(["sh", "-c", command], check=False, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", ["tune", "show", "trials"])
def test_a_database_of_another_version_is_refused_and_left_alone(
    cli: Cli, tmp_path: Path, command: str
) -> None:
    assert cli("db", "upgrade").code == 0
    path = tmp_path / "results.db"
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999_future'")
    before = path.read_bytes()
    ran = cli(command, GOOD)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert "9999_future" in ran.err
    assert path.read_bytes() == before


def test_a_read_only_database_is_refused_for_tuning(cli: Cli, tmp_path: Path) -> None:
    assert cli("db", "upgrade").code == 0
    url = f"sqlite:///file:{tmp_path / 'results.db'}?mode=ro&uri=true"
    ran = cli("tune", GOOD, "--db", url)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert "read-only" in ran.err


@pytest.mark.full
def test_a_server_that_is_not_there(cli: Cli) -> None:
    ran = cli("show", GOOD, "--server", "http://127.0.0.1:9")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.count("\n") == 1
    assert "no answer from http://127.0.0.1:9" in ran.err
