import importlib.resources
import json
import re
import tomllib

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement

from tests.deployment import compose
from tests.deployment.compose import DOCKERFILE, ROOT, SECRETS, is_built, services
from tilewise.cli.parser import make_parser

SERVICES = services()
VENDOR = importlib.resources.files("check_jsonschema.builtin_schemas.vendor")
SCHEMA = json.loads((VENDOR / "compose-spec.json").read_text())
SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|KEY")
ONCE = {"migrate", "scrape-token", "dashboard-role"}
TIMED = {"worker-1", "worker-2"}
(USER,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)


def test_the_file_has_the_form_of_the_specification_and_the_whole_farm() -> None:
    jsonschema.validate(compose.raw(), SCHEMA)
    jsonschema.validate(compose.read(), SCHEMA)
    assert set(SERVICES) == {
        *("database", "migrate", "service", "scheduler", "driver", "worker-1", "worker-2"),
        *("prometheus", "scrape-token", "grafana", "dashboard-role"),
    }


def test_no_secret_is_in_the_file() -> None:
    names = set()
    for service in compose.raw()["services"].values():
        for name, value in service.get("environment", {}).items():
            if SECRET.search(name):
                found = re.fullmatch(r"\$\{([A-Z_]+):\?[^}]+\}", value)
                assert found, f"{name} is {value}"
                names.add(found[1])
            elif "://" in value and "@" in value:
                assert re.search(r":\$\{TILEWISE_DB_PASSWORD:\?[^}]+\}@", value), name
    assert names == set(SECRETS)
    shown = [part for one in SERVICES.values() for part in one.get("command", [])]
    assert not [part for part in shown if any(one in part for one in SECRETS.values())], "is public"


@pytest.mark.parametrize("name", SECRETS)
def test_nothing_starts_without_its_secrets(name: str) -> None:
    with pytest.raises(compose.UnsetError, match=name):
        compose.read({other: value for other, value in SECRETS.items() if other != name})


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_writes_to_its_volumes_alone_and_is_not_root(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert any(mount.split(":")[0] == "/tmp" for mount in service["tmpfs"])
    user = service.get("user") or ("root" if not is_built(service) else USER)
    assert user not in ("", "0", "root")
    for mount in service.get("volumes", ()):
        source, _, rest = mount.partition(":")
        if source.startswith("."):
            assert (ROOT / source).exists() and rest.endswith(":ro"), mount
        else:
            assert source in compose.raw()["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_what_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["restart"] == ("no" if name in ONCE else "unless-stopped")
    for needed, how in service.get("depends_on", {}).items():
        other = SERVICES[needed]
        if needed in ONCE:
            assert how == {"condition": "service_completed_successfully"}
        else:
            assert how == {"condition": "service_healthy"} and "healthcheck" in other


def test_all_that_serves_has_a_health_check_but_what_times() -> None:
    assert set(compose.checked()) == set(SERVICES) - ONCE - TIMED


def test_who_reaches_whom() -> None:
    """The scheduler runs what it is sent; the database and the front are beyond its network."""
    on = {network: set() for network in compose.raw()["networks"]}
    for name, service in SERVICES.items():
        for network in service["networks"]:
            on[network].add(name)
    assert on["cluster"] == {"scheduler", "driver", *TIMED}
    assert not on["data"] & {"scheduler", "prometheus", *TIMED}
    assert on["front"] == {"service", "prometheus", *TIMED}
    assert on["outside"] == {name for name, one in SERVICES.items() if "ports" in one}
    inside = {name for name, one in compose.raw()["networks"].items() if one.get("internal")}
    assert inside == {"data", "cluster", "front"}
    for name in ("prometheus", "grafana"):
        assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


def test_workers_have_processors_of_their_own_and_no_database() -> None:
    given = [SERVICES[name]["cpuset"] for name in sorted(TIMED)]
    assert given == ["0", "1"]
    for name in TIMED:
        assert "TILEWISE_DB" not in SERVICES[name]["environment"]
        alias = SERVICES[name]["command"][-1]
        assert SERVICES[name]["networks"]["cluster"]["aliases"] == [alias] == [f"{name}.cluster"]


@pytest.mark.parametrize("name", [name for name, one in SERVICES.items() if is_built(one)])
def test_a_command_is_accepted_and_its_image_is_made(name: str) -> None:
    service = SERVICES[name]
    program, *arguments = service["command"]
    if program == "tilewise":
        make_parser().parse_args(arguments)
    assert f" AS {service['build']['target']}\n" in DOCKERFILE
    is_of_cluster = name in {"scheduler", "driver", *TIMED}
    assert service["build"]["target"] == ("worker" if is_of_cluster else "service")


def test_the_addresses_agree() -> None:
    assert SERVICES["service"]["command"][-3] == "8000"
    assert SERVICES["scheduler"]["command"][-1] == "8786"
    environments = [one.get("environment", {}) for one in SERVICES.values()]
    schedulers = {found["TILEWISE_SCHEDULER"] for found in environments if
                  "TILEWISE_SCHEDULER" in found}  # fmt: skip
    assert schedulers == {"tcp://scheduler:8786"}
    assert SERVICES["driver"]["environment"]["TILEWISE_SERVICE_URL"] == "http://service:8000"
    assert len({found["TILEWISE_DB"] for found in environments if "TILEWISE_DB" in found}) == 1


def test_prometheus_finds_the_front_its_token_and_its_rules() -> None:
    mounts = dict(one.split(":")[:2] for one in SERVICES["prometheus"]["volumes"])
    inside = {target: source for source, target in mounts.items()}
    found = yaml.safe_load((ROOT / inside["/etc/prometheus/prometheus.yml"]).read_text())
    (scrape,) = found["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": ["service:8000"]}]
    assert scrape["authorization"] == {"credentials_file": "/tokens/tilewise.token"}
    assert inside["/tokens"] == "tokens"
    assert SERVICES["scrape-token"]["volumes"] == ["tokens:/tokens"]
    for file in found["rule_files"]:
        assert (ROOT / inside[f"/etc/prometheus/{file}"]).exists()


def test_the_images_install_pinned_versions_of_what_is_there() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {re.split("==", line)[0].lower().replace("_", "-") for line in lines}
    installed = re.findall(r"install .* '\.\[([a-z,]+)\]'", DOCKERFILE)
    assert installed == ["service,postgres", "cluster,postgres"]
    for package in ("kernels", "search", "service", "tilewise", "migrations"):
        assert f"COPY {package} ./{package}" in DOCKERFILE
    assert DOCKERFILE.count("-c constraints.txt") == len(installed)
    wanted = {name for names in installed for name in names.split(",")}
    while wanted:
        for text in extras["optional-dependencies"][wanted.pop()]:
            needed = Requirement(text)
            if needed.name == "tilewise":
                wanted |= needed.extras
            else:
                assert needed.name.lower().replace("_", "-") in pins, needed.name
