import json
import re

import pytest

from tests.tilewise.conftest import Cli


def test_a_token_is_made_shown_once_and_revoked(cli: Cli, database: str) -> None:
    made = cli("token", "create", "ci", "--scope", "read", "--days", "7")
    assert made.code == 0 and re.fullmatch(r"tw_[A-Za-z0-9_-]{43}\n", made.out)
    assert "shown only once" in made.err
    listed = cli("token", "list")
    assert made.out.strip() not in listed.out
    assert listed.out.splitlines()[1].split()[:2] == ["ci", "read"]
    assert cli("token", "revoke", "ci").out == "ci is revoked\n"
    (row,) = json.loads(cli("token", "list", "--json").out)["tokens"]
    assert row["revoked"] and row["expires"]
    again = cli("token", "create", "ci", "--scope", "read")
    assert again.code == 1 and "there is a token 'ci' already" in again.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("create",), 2, "needs a NAME"),
        (("create", "x"), 2, "needs --scope"),
        (("create", "x", "--scope", "root"), 2, "invalid choice"),
        (("create", "a b", "--scope", "read"), 2, "name="),
        (("create", "x", "--scope", "read", "--days", "0"), 2, "days="),
        (("create", "x", "--scope", "read", "--days", "nan"), 2, "days="),
        (("list", "x"), 2, "takes no NAME"),
        (("list", "--scope", "read"), 2, "takes no --scope"),
        (("revoke", "nobody"), 3, "there is no token 'nobody'"),
        (("revoke",), 2, "needs a NAME"),
    ],
)
def test_what_makes_no_sense(cli: Cli, arguments: tuple[str, ...], code: int, said: str) -> None:
    ran = cli("token", *arguments)
    assert ran.code == code and said in ran.err and len(ran.err.splitlines()) == 1


def test_tokens_of_a_service_take_one_of_scope_admin(
    cli: Cli, served: str, tuned: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = cli("token", "list", "--server", served)
    assert refused.code == 1 and "scope admin" in refused.err
    token = cli("token", "create", "root", "--scope", "admin", "--db", tuned).out.strip()
    monkeypatch.setenv("TILEWISE_TOKEN", token)
    made = cli("token", "create", "ci", "--scope", "read", "--server", served)
    assert made.code == 0 and made.out.startswith("tw_")
    here = cli("token", "list", "--db", tuned)
    there = cli("token", "list", "--server", served)
    assert [line.split()[:2] for line in here.out.splitlines()] == [
        line.split()[:2] for line in there.out.splitlines()
    ]
    assert cli("token", "revoke", "ci", "--server", served).code == 0
    assert cli("token", "revoke", "nobody", "--server", served).code == 3
    monkeypatch.setenv("TILEWISE_TOKEN", made.out.strip())
    gone = cli("show", "matmul:m=64,n=48,k=32,dtype=f32", "--server", served)
    assert gone.code == 1 and "revoked" in gone.err and made.out.strip() not in gone.err


def test_old_samples_are_thinned(cli: Cli, tuned: str) -> None:
    ran = cli("db", "prune", "--older-than", "0", "--dry-run", "--json", "--db", tuned)
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "dry_run": True, "trials": 0, "samples": 0, "bytes": 0, "keys": 0, "workers": 0,
        "plans": 0, "unkept_results": 0,
    }  # fmt: skip
    assert cli("db", "prune", "--vacuum", "--db", tuned).code == 0


@pytest.mark.parametrize(
    ("option", "value"), [("--older-than", "-1"), ("--older-than", "nan"), ("--keep-samples", "2")]
)
def test_what_cannot_be_pruned(cli: Cli, option: str, value: str) -> None:
    ran = cli("db", "prune", option, value)
    assert ran.code == 2 and option[2:] in ran.err
