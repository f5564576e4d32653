import pytest

from tilewise.cli import main

URL = "tcp://127.0.0.1:1"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in ("TILEWISE_SCHEDULER", "TILEWISE_SERVICE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["worker"], "give --scheduler tcp://HOST:PORT"),
        (["worker", "--scheduler", "gopher://x"], "write tcp://HOST:PORT or tls://HOST:PORT"),
        (["driver"], "give --scheduler tcp://HOST:PORT"),
        (["driver", "--scheduler", URL], "give --service URL"),
        (["driver", "--scheduler", URL, "--service", "x"], "write http://HOST:PORT"),
        (["driver", "--scheduler", URL, "--service", "http://x", "--db", "x"], "not a database"),
        (["scheduler", "--port", "99999"], "port=99999 is out of range"),
    ],
)
def test_bad_input_is_one_line(words, told, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1


def test_a_variable_that_makes_no_sense_is_named(monkeypatch, capsys):
    monkeypatch.setenv("TILEWISE_SCHEDULER", "tcp://nowhere")
    assert main(["worker"]) == 2
    assert "TILEWISE_SCHEDULER='tcp://nowhere'" in capsys.readouterr().err


def test_tls_without_certificates_says_so(monkeypatch, capsys):
    assert main(["scheduler", "--port", "0", "--tls"]) == 1
    assert "check your TLS configuration" in capsys.readouterr().err
