"""A release: what it contains, and what its commands do where it is installed."""

import contextlib
import json
import re
import sqlite3
import tarfile
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import httpx
import pytest
import yaml
from packaging.metadata import Metadata

from tests.kernels.mlir.build import PACKED, schedule
from tests.kernels.mlir.proof.test_verify import MATMUL
from tests.service.db.released import dumps
from tests.tilewise.conftest import PROBLEM, serving, store_result
from tests.tilewise.installed import ROOT, environments
from tests.tilewise.installed.conftest import with_extras
from tests.tilewise.installed.environments import Distributions, Ended, Environment
from tilewise.cli.parser import all_commands
from tilewise.kernels.mlir.cpu.script import emit_script
from tilewise.kernels.system.toolchain import identity
from tilewise.requirements import INCLUDED, MODULES
from tilewise.service.db import schema
from tilewise.version import VERSION

COMMANDS = {command.name: command for command in all_commands()}
FILES = {
    "problems.txt": f"{PROBLEM}\n",
    "suite.json": f'{{"name": "one", "problems": ["{PROBLEM}"]}}',
    "model.mlir": "func.func @main() { return }",
    "script.mlir": f"// problem: {PROBLEM}\nmodule {{}}\n",
    "plan.json": "{}",
}
GIVEN = {
    **{name: [PROBLEM] for name in ("asm", "kernel", "script", "show", "trials")},
    **{name: ["model.mlir"] for name in ("import", "model", "plan")},
    **{name: ["--port", "0"] for name in ("scheduler", "serve")},
    "bench": ["suite.json"],
    "compare": ["sqlite:///base.db", "sqlite:///new.db"],
    "db": ["check"], "plot": [PROBLEM, "-o", "plot.svg"], "store": ["export", "archive.zip"],
    "driver": ["--scheduler", "tcp://127.0.0.1:1", "--service", "http://127.0.0.1:1"],
    "fetch": ["problems.txt", "-o", "scripts"],
    "library": ["problems.txt", "-o", "library"],
    "predictor": ["evaluate", "model.mlir"], "token": ["list"], "top": ["--once"],
    "tune": [PROBLEM, "--trials", "4"], "verify": ["script.mlir"],
    "worker": ["--scheduler", "tcp://127.0.0.1:1"],
}  # fmt: skip
"""What each command is given; `doctor` takes nothing."""

FORMS = [
    *(["script", PROBLEM, "--flavor", name] for name in ("air", "iree", "iree-spec")),
    *(["script", "model.mlir", *more]
      for more in (["--place", "0"], ["--packs"], ["--flavor", "iree"],
                   ["--flavor", "iree", "--plan", "plan.json"])),
    ["kernel", PROBLEM, "--format", "object", "-o", "kernel.o"], ["plan", "model.mlir", "--run"],
    ["kernel", PROBLEM, "--format", "c-header"], ["store", "import", "suite.json"],
    ["plot", "1", "-o", "plot.svg", "--kind", "nest"], ["db", "upgrade"], ["db", "prune"],
    ["token", "create", "ci", "--scope", "read"],
    ["fetch", "problems.txt", "-o", "scripts", "--check"],
    ["bench", "suite.json", "--peers", "openblas"],
]  # fmt: skip
"""Other forms of commands, which load other modules."""


def written(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def bare(base, tmp_path_factory) -> dict[tuple[str, ...], Ended]:
    folder = written(tmp_path_factory.mktemp("bare"))
    asked = [*([name, *GIVEN[name]] for name in GIVEN), *FORMS, ["doctor"]]
    ended = base.run_all(asked, folder, TILEWISE_DB=f"sqlite:///{folder}/results.db")
    return {tuple(one): end for one, end in zip(asked, ended, strict=True)}


def test_every_command_is_tried() -> None:
    without_needs = {name for name, command in COMMANDS.items() if not command.extra}
    assert {*GIVEN, *without_needs} == {*COMMANDS}


@pytest.mark.full
def test_a_command_that_lacks_something_says_what_to_install_and_advises_a_server(bare) -> None:
    for arguments, end in bare.items():
        command = COMMANDS[arguments[0]]
        if not command.extra:
            continue
        assert (end.code, end.out, end.err.count("\n")) == (1, "", 1), (arguments, end)
        extras = [extra for extra in MODULES if f"install tilewise[{extra}]" in end.err]
        assert len(extras) == 1, (arguments, end.err)
        if list(arguments) not in FORMS:  # a form may need less
            assert extras == [command.extra], (arguments, end.err)
            assert ("--server" in end.err) == (command.at_service == ""), (arguments, end.err)


@pytest.mark.full
def test_a_service_does_the_work_of_those(base, tmp_path, monkeypatch) -> None:
    database = f"sqlite:///{tmp_path}/results.db"
    store_result(database, monkeypatch)
    light = [name for name, command in COMMANDS.items() if command.at_service == ""]
    asked = [[name, *GIVEN.get(name, ())] for name in light if name != "plan"]  # needs a worker
    asked += [["kernel", PROBLEM, "--format", "object", "-o", "x.o"],
              ["script", PROBLEM, "--with-payload"]]  # fmt: skip
    with serving(database, 0) as url:
        ended = base.run_all(asked, written(tmp_path), TILEWISE_SERVER=url)
    for arguments, end in zip(asked, ended, strict=True):
        assert "install" not in end.err, (arguments, end.err)
        is_refused = arguments[0] == "token"  # without a token nobody may list them
        assert end.code == is_refused, (arguments, end.err)
        assert "scope admin" in end.err or not is_refused


@pytest.mark.full
def test_the_extra_of_kernels_is_enough_to_verify_and_to_import(release, tmp_path) -> None:
    made = with_extras(release, tmp_path / "environment", "kernels")
    written(tmp_path)
    (tmp_path / "script.mlir").write_text(emit_script(MATMUL, schedule(*PACKED)))
    verified, imported, examined = made.run_all(
        [["verify", "script.mlir"], ["import", "model.mlir"], ["doctor"]], tmp_path
    )
    assert (verified.code, imported.code, examined.code) == (0, 0, 0), (verified, imported)
    ready = next(line for line in examined.out.splitlines() if line.startswith("ready "))
    assert {"import", "verify"} <= set(ready.replace(",", "").split())


@pytest.mark.full
def test_doctor_says_of_each_command_what_it_lacks(bare: dict[tuple[str, ...], Ended]) -> None:
    end = bare[("doctor",)]
    assert end.code == 0 and not end.err
    lines = end.out.splitlines()
    (ready,) = (one for one in lines if one.startswith("ready "))
    for command in COMMANDS.values():
        is_listed = command.name in ready.replace(",", "").split()
        assert is_listed == (not command.extra), command.name
        if command.extra:
            (line,) = (one for one in lines if f"install tilewise[{command.extra}]" in one)
            assert f" {command.name}" in line
    (at_service,) = (one for one in lines if one.startswith("with server"))
    assert {"tune", "serve"} & set(at_service.replace(",", "").split()) == {"tune"}


def test_the_modules_of_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    distributions = {
        module: {one.lower().replace("_", "-") for one in names}
        for module, names in packages_distributions().items()
    }
    distributions |= {  # of one namespace, or not installed for tests
        "iree.compiler": {"iree-base-compiler"}, "iree.runtime": {"iree-base-runtime"},
        "opentelemetry.sdk": {"opentelemetry-sdk"},
        "opentelemetry.exporter.otlp.proto.http": {"opentelemetry-exporter-otlp-proto-http"},
        "torch": {"torch"}, "jax": {"jax"}, "onnxruntime": {"onnxruntime"},
    }  # fmt: skip
    for extra, wanted in project["optional-dependencies"].items():
        if extra in ("docs", "dev"):
            continue
        names = {one.partition("=")[0].partition(">")[0].partition("[")[0] for one in wanted}
        within = [one for one in wanted if one.startswith("tilewise[")]
        assert within == ([f"tilewise[{INCLUDED[extra]}]"] if extra in INCLUDED else [])
        installed = set[str]().union(*(distributions[module] for module in MODULES[extra]))
        assert names - {"tilewise"} <= installed, extra
        assert len(MODULES[extra]) == len(names - {"tilewise"}), extra


TUNE = ("tune", PROBLEM, "--trials", "2", "--json")
PAGES = ("/", "/jobs", "/suites", "/submit", "/docs")
ASSET = re.compile(r"\"(/assets/[^\"]+/[^\"]+)\"")


def assert_works(made: Environment) -> None:
    imported = made.python_code("import tilewise; tilewise.Client; print(tilewise.__file__)")
    assert imported.out == f"{made.packages}/tilewise/__init__.py\n", imported
    assert made.tilewise("--version") == Ended(0, f"tilewise {VERSION}\n", "")
    examined = made.tilewise("doctor")
    assert (examined.code, examined.err) == (0, "") and "ready " in examined.out
    code = f"from importlib.util import find_spec; print(*filter(find_spec, {PACKAGES}))"
    assert made.python_code(code) == Ended(0, "\n", ""), "no packages of version 0.1.0"


def assert_serves(made: Environment, database: str, *pages: str) -> None:
    """Serve a database: health, documents, pages, and all that pages load."""
    with made.serving(database) as url, httpx.Client(base_url=url, timeout=60) as client:
        assert client.get("/healthz").json() == {"status": "ok", "version": VERSION}
        assert client.get("/readyz").is_success
        assert client.get("/openapi.json").json()["info"]["version"] == VERSION
        assets = set[str]()
        for page in pages:
            answer = client.get(page, headers={"Accept": "text/html"})
            assert answer.is_success, (page, answer.text)
            assert answer.headers["content-type"].startswith("text/html")
            assets.update(ASSET.findall(answer.text))
        assert assets
        for asset in assets:
            assert client.get(asset).is_success, asset


@pytest.mark.full
def test_the_base_package_of_a_wheel_works(base: Environment) -> None:
    assert_works(base)


@pytest.mark.full
def test_the_base_package_of_an_sdist_works_and_goes_without_a_trace(release, tmp_path) -> None:
    made = environments.make(tmp_path, release.wheel, frozenset(), "setuptools")
    before = made.tree()
    done = made.pip("install", "--no-index", "--no-build-isolation", release.sdist)
    assert done.code == 0, done
    assert_works(made)
    assert made.pip("uninstall", "--yes", "tilewise").code == 0
    assert made.tree() == before


@pytest.mark.full
def test_the_service_tunes_and_serves(with_service: Environment, tmp_path: Path) -> None:
    assert_works(with_service)
    database = f"sqlite:///{tmp_path}/results.db"
    tuned = with_service.tilewise(*TUNE, TILEWISE_DB=database)
    assert tuned.code == 0, tuned
    found = json.loads(tuned.out)
    assert found["toolchain"] == identity(), "the same generator as in the checkout"
    script = with_service.tilewise("script", PROBLEM, TILEWISE_DB=database)
    assert script.code == 0 and "transform.named_sequence" in script.out
    assert_serves(with_service, database, *PAGES, f"/problems/{found['key']}")


@pytest.mark.full
def test_a_store_of_the_first_schema_is_upgraded_and_served(with_service, tmp_path) -> None:
    file = tmp_path / "results.db"
    database = f"sqlite:///{file}"
    dumps.load(database, dumps.REVISIONS[0])
    upgraded = with_service.tilewise("db", "upgrade", TILEWISE_DB=database)
    assert upgraded.code == 0, upgraded
    with contextlib.closing(sqlite3.connect(file)) as connection:
        ((found,),) = connection.execute(f"SELECT version_num FROM {schema.VERSION_TABLE}")
    assert found == schema.HEAD
    assert_serves(with_service, database, "/", "/jobs")


MOST_BYTES = 3 << 20  # of a wheel
PACKAGES = ("kernels", "search", "service", "migrations")
SECTION = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {one.filename: archive.read(one) for one in archive.infolist()}


def sources() -> set[str]:
    roots = {f"tilewise/{name}": ROOT / name for name in PACKAGES} | {"tilewise": ROOT / "tilewise"}
    return {
        f"{name}/{path.relative_to(root)}"
        for name, root in roots.items()
        for path in root.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.full
def test_a_wheel_has_one_package_with_all_files_as_an_image_makes_it(release) -> None:
    files = contents(release.wheel)
    assert {path.split("/")[0] for path in files} == {"tilewise", f"tilewise-{VERSION}.dist-info"}
    assert {path for path in files if path.startswith("tilewise/")} == sources()
    assert files == contents(release.of_image), "`python -m build` made it from the sdist"
    assert release.wheel.stat().st_size <= MOST_BYTES
    with zipfile.ZipFile(release.wheel) as archive:
        kinds = {one.external_attr >> 28 for one in archive.infolist()}
    assert kinds == {0o10}  # regular files


def test_a_folder_of_the_checkout_is_the_package_of_its_name() -> None:
    for name in PACKAGES:
        link = ROOT / "tilewise" / name
        assert link.is_symlink() and link.resolve() == (ROOT / name).resolve()


@pytest.mark.full
def test_an_sdist_has_the_package_once(release: Distributions) -> None:
    with tarfile.open(release.sdist) as archive:
        members = archive.getmembers()
    top = f"tilewise-{VERSION}"
    paths = {one.name.removeprefix(f"{top}/") for one in members if one.isfile()}
    assert all(one.isfile() or one.isdir() for one in members)
    assert {path for path in paths if path.startswith("tilewise/")} == sources()
    assert {path for path in paths if not path.startswith(("tilewise/", "tilewise.egg-info/"))} == {
        *("LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg")
    }


@pytest.mark.full
def test_the_metadata_are_what_an_index_takes(release: Distributions) -> None:
    text = contents(release.wheel)[f"tilewise-{VERSION}.dist-info/METADATA"]
    found = Metadata.from_email(text, validate=True)  # as an index checks what is sent to it
    assert (found.name, str(found.version)) == ("tilewise", VERSION)
    assert found.license_expression == "Apache-2.0 WITH LLVM-exception"
    assert found.description_content_type == "text/markdown"
    assert found.description == (ROOT / "README.md").read_text()
    assert "Typing :: Typed" in (found.classifiers or ())
    with tarfile.open(release.sdist) as archive:
        of_sdist = archive.extractfile(f"tilewise-{VERSION}/PKG-INFO")
        assert Metadata.from_email(of_sdist.read(), validate=True).version == found.version


def test_files_that_name_the_version_name_this_one() -> None:
    sections = SECTION.findall((ROOT / "CHANGELOG.md").read_text())
    released = [(name, day) for name, day in sections if name != "Unreleased"]
    assert released[0][0] == VERSION and all(day for _, day in released)
    document = json.loads((ROOT / "docs" / "openapi.json").read_text())
    assert document["info"]["version"] == VERSION
    pods = (ROOT / "examples" / "kubernetes" / "tilewise.yaml").read_text()
    assert list(yaml.safe_load_all(pods))
    assert set(re.findall(r"tilewise:([\d.]+)", pods)) == {VERSION}
