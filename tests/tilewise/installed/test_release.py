import json
import re
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.metadata import Metadata

from tests.tilewise.installed import ROOT
from tests.tilewise.installed.distributions import Distributions
from tilewise.version import VERSION

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


def metadata_of(text: bytes) -> Metadata:
    """Return checked metadata, as an index checks what is sent to it."""
    return Metadata.from_email(text, validate=True)


def in_wheel(name: str, files: dict[str, bytes]) -> bytes:
    (text,) = (text for path, text in files.items() if path.endswith(f".dist-info/{name}"))
    return text


@pytest.mark.full
def test_a_wheel_has_one_package_and_all_of_its_files(release: Distributions) -> None:
    files = contents(release.wheel)
    assert {path.split("/")[0] for path in files} == {"tilewise", f"tilewise-{VERSION}.dist-info"}
    assert {path for path in files if path.startswith("tilewise/")} == sources()
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
def test_a_checkout_an_sdist_and_an_image_make_the_same_wheel(release: Distributions) -> None:
    """`python -m build` makes the wheel of a release from the sdist."""
    assert contents(release.wheel) == contents(release.of_image)


@pytest.mark.full
def test_the_metadata_are_what_an_index_takes(release: Distributions) -> None:
    found = metadata_of(in_wheel("METADATA", contents(release.wheel)))
    assert (found.name, str(found.version)) == ("tilewise", VERSION)
    assert found.license_expression == "Apache-2.0 WITH LLVM-exception"
    assert found.description_content_type == "text/markdown"
    assert found.description == (ROOT / "README.md").read_text()
    assert "Typing :: Typed" in (found.classifiers or ())
    with tarfile.open(release.sdist) as archive:
        of_sdist = archive.extractfile(f"tilewise-{VERSION}/PKG-INFO")
        assert of_sdist is not None
        assert metadata_of(of_sdist.read()).version == found.version


def test_the_newest_section_of_the_changelog_is_this_version() -> None:
    sections = SECTION.findall((ROOT / "CHANGELOG.md").read_text())
    released = [(name, day) for name, day in sections if name != "Unreleased"]
    assert released[0][0] == VERSION
    assert all(day for _, day in released)


def test_files_that_name_the_version_name_this_one() -> None:
    document = json.loads((ROOT / "docs" / "openapi.json").read_text())
    assert document["info"]["version"] == VERSION
    pods = (ROOT / "examples" / "kubernetes" / "tilewise.yaml").read_text()
    assert list(yaml.safe_load_all(pods))
    assert set(re.findall(r"tilewise:([\d.]+)", pods)) == {VERSION}
