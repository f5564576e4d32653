import socket
from pathlib import Path

import pytest

from tests.tilewise.conftest import Cli


def test_a_taken_port_is_exit_1_and_nothing_is_made(cli: Cli, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = cli("serve", "--port", str(port))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        f"tilewise: port={port} of 127.0.0.1 is taken; give another, or 0 for one that is free\n"
    )
    assert not (tmp_path / "results.db").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--port", "65536"), "port=65536 is out of range; give 0 to 65535"),
        (("--port", "-1"), "port=-1"),
        (("--port", "9" * 5000), "invalid int value"),
        (("--port", "http"), "invalid int value: 'http'"),
        (("--host", "192.0.2.1"), "host='192.0.2.1' is not an address of this machine"),
        (("--host", "no-such-host.invalid"), "is not an address of this machine"),
        (("--host", ""), "host='' is not an address"),
        (("--host", "x" * 300), "is not an address of this machine"),
        (("--host", "a..b"), "host='a..b'"),
        (("--host", "\udcff"), r"host='\udcff'"),
        (("--workers", "9" * 30), "is out of range; give 0 to 64"),
        (("--port", "0", "--db", "postgresql://host:port/x"), "is not a database URL"),
    ],
)
def test_an_address_that_makes_no_sense_is_exit_2(
    cli: Cli, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    ran = cli("serve", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert says in ran.err
    assert not (tmp_path / "results.db").exists()
