"""What tells results of one toolchain from those of another."""

import ast
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kernels
from kernels.system import toolchain
from kernels.system.toolchain import COMPILERS, generator_hash, identity

SOURCES = Path(kernels.__file__).parent
GENERATOR = [
    "native/microkernels/outer_product.py",
    "native/language/packs.py",
    "mlir/cpu/script.py",
    "mlir/air/script.py",
    "mlir/transform/named_sequences/cleanup.mlir",
    "mlir/transform/named_sequences/fragments/sink_casts.mlir",
    "schedule/legality.py",
    "loopnest/nest.py",
    "arithmetic.py",
    "channel_blocks.py",
    "minimal_filtering.py",
    "problem/base.py",
    "problem/dtypes.py",
    "problem/iteration.py",
    "problem/model.py",
    "target/model.py",
]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources, for a test to change."""
    place = tmp_path / "kernels"
    shutil.copytree(SOURCES, place, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(kernels, "__file__", str(place / "__init__.py"))
    return place


def hashed() -> str:
    """As a new process finds it."""
    generator_hash.cache_clear()
    try:
        return generator_hash()
    finally:
        generator_hash.cache_clear()


def edit(path: Path) -> None:
    """One character of the last line is another."""
    text = path.read_text()
    path.write_text(f"{text[:-2]}#\n")


def double(path: Path) -> None:
    path.with_stem("another").write_bytes(path.read_bytes())


def rename(path: Path) -> None:
    path.rename(path.with_stem(f"{path.stem}_of_old"))


def test_the_hash_is_of_the_sources_wherever_they_lie(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = hashed()
    (copied / "native" / "notes.txt").write_text("no source")
    (copied / "errors.py").write_text("what the generator says, and not what it makes")
    assert hashed() == here
    monkeypatch.setattr(kernels, "__file__", str(SOURCES / "__init__.py"))
    assert hashed() == here


def test_what_reads_users_modules_has_no_part_in_it(copied: Path) -> None:
    before = hashed()
    edit(copied / "mlir" / "frontend" / "child" / "conversion.py")
    edit(copied / "mlir" / "network" / "packing.py")
    edit(copied / "mlir" / "normalised" / "parts.py")
    assert hashed() == before
    readers = {"frontend", "network", "normalised"}
    for path in (copied / "mlir").rglob("*.py"):
        if readers.isdisjoint(path.relative_to(copied).parts):
            for reader in readers:
                assert f"mlir.{reader}" not in path.read_text(), f"{path.name} imports a reader"


@pytest.mark.parametrize("name", GENERATOR)
def test_another_character_in_a_source_is_another_generator(name: str, copied: Path) -> None:
    before = hashed()
    edit(copied / name)
    assert hashed() != before


def test_what_native_code_is_made_from_is_a_source() -> None:
    """Whatever the generator imports from beside it, but for what runs, checks or says things."""
    others = {"errors", "oracle", "quoting", "statistics", "system"}
    for path in (SOURCES / "native").rglob("*.py"):
        for line in ast.walk(ast.parse(path.read_text())):
            if isinstance(line, ast.ImportFrom) and (line.module or "").startswith("kernels."):
                room = str(line.module).split(".")[1]
                known = any(name.partition("/")[0] in (room, f"{room}.py") for name in GENERATOR)
                assert known or room in others, f"{path.name} imports {line.module}"


@pytest.mark.parametrize(
    "name", ["native/strides/of_schedule.py", "mlir/transform/named_sequences/lower_vectors.mlir"]
)
@pytest.mark.parametrize("change", [double, rename, Path.unlink])
def test_so_is_a_source_that_comes_goes_or_moves(
    change: Callable[[Path], None], name: str, copied: Path
) -> None:
    before = hashed()
    change(copied / name)
    assert hashed() != before


def test_the_identity_names_every_compiler_and_the_generator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    versions = {name: f"1.2.{place}" for place, name in enumerate(COMPILERS)}
    monkeypatch.setattr(toolchain.metadata, "version", versions.__getitem__)
    monkeypatch.setattr(toolchain, "generator_hash", lambda: "1f2e3d4c")
    told = [f"{name} {version}" for name, version in versions.items()]
    assert identity.__wrapped__() == ", ".join([*told, "generator 1f2e3d4c"])


def test_a_compiler_that_is_not_installed_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "COMPILERS", ("no-such-distribution",))
    assert identity.__wrapped__().startswith("no-such-distribution absent, generator ")
