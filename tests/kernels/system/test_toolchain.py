"""What tells results of one toolchain from those of another."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewise.kernels.system import toolchain
from tilewise.kernels.system.children import ROOT
from tilewise.kernels.system.toolchain import (
    COMPILERS,
    FOLLOWED,
    NEUTRAL,
    generator_hash,
    identity,
    sources,
)

SOURCES = ROOT / "tilewise"
GENERATOR = [
    "kernels/native/export/templates/module.py.tmpl",
    "kernels/native/microkernels/outer_product.py",
    "kernels/native/microbench.py",
    "kernels/native/language/functions.py",
    "kernels/native/objects/templates/header.h",
    "kernels/mlir/cpu/script.py",
    "kernels/mlir/air/script.py",
    "kernels/mlir/proof/child/stages.py",
    "kernels/mlir/proof/child/prove.py",
    "kernels/mlir/transform/named_sequences/cleanup.mlir",
    "kernels/mlir/transform/named_sequences/fragments/sink_casts.mlir",
    "kernels/nest/nest.py",
    "kernels/steps/pack.py",
    "kernels/schedule.py",
    "kernels/oracle/accuracy.py",
    "kernels/oracle/operands.py",
    "kernels/oracle/reference.py",
    "kernels/arithmetic.py",
    "kernels/instructions/declaration.py",
    "kernels/fast_algorithms.py",
    "kernels/problem/keys.py",
    "kernels/problem/parse.py",
    "kernels/target/cores.py",
    "kernels/target/machine.py",
    "search/runner/child/accuracy.py",
]
ENTRY_POINTS = "import " + ", ".join(
    (
        "tilewise.kernels.native.export.module",
        "tilewise.kernels.native.objects.make",
        "tilewise.kernels.native.microbench",
        "tilewise.kernels.native.objects.proof.child",
        "tilewise.kernels.mlir.cpu.script",
        "tilewise.kernels.mlir.air.prove",
        "tilewise.kernels.mlir.proof.prove",
        "tilewise.kernels.mlir.proof.child.stages",
        "tilewise.kernels.mlir.tuning_spec.prove",
        "tilewise.search.runner.child.session",
    )
)


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources, for a test to change."""
    for package in ("kernels", "search"):
        shutil.copytree(
            SOURCES / package,
            tmp_path / "tilewise" / package,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    monkeypatch.setattr(toolchain, "ROOT", tmp_path)
    return tmp_path / "tilewise"


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
    (copied / "kernels" / "native" / "notes.txt").write_text("no source")
    (copied / "kernels" / "native" / "unused.py").write_text("nothing imports it")
    (copied / "kernels" / "errors.py").write_text("what the generator says, and not what it makes")
    assert hashed() == here
    monkeypatch.setattr(toolchain, "ROOT", ROOT)
    assert hashed() == here


@pytest.mark.parametrize(
    "name",
    [
        "kernels/mlir/frontend/child/onnx.py",
        "kernels/mlir/network/packing.py",
        "kernels/mlir/op_scripts/packing.py",
        "kernels/native/assembly.py",
        "search/runner/child/interleaved.py",
        "search/model/analytical.py",
    ],
)
def test_what_reads_users_modules_reports_or_chooses_has_no_part_in_it(
    name: str, copied: Path
) -> None:
    before = hashed()
    edit(copied / name)
    assert hashed() == before


@pytest.mark.full
@pytest.mark.parametrize("name", GENERATOR)
def test_another_character_in_a_source_is_another_generator(name: str, copied: Path) -> None:
    before = hashed()
    edit(copied / name)
    assert hashed() != before


def test_every_module_that_generating_and_judging_loads_is_a_source() -> None:
    """What Python itself loads, of which the list that is found in the text must have all."""
    program = f"{ENTRY_POINTS}, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = {name for name in done.stdout.split() if is_followed(name)}
    assert len(loaded) > 150
    assert not loaded - set(modules())


def modules() -> dict[str, Path]:
    """The sources that are modules, by their names."""
    found = {}
    for path in sources(ROOT):
        if path.suffix == ".py":
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(part for part in parts if part != "__init__")] = path
    return found


def is_followed(name: str) -> bool:
    counts = any(f"{name}.".startswith(f"{package}.") for package in FOLLOWED)
    return counts and not any(f"{name}.".startswith(f"{package}.") for package in NEUTRAL)


def test_an_entry_point_that_has_gone_is_an_error(copied: Path) -> None:
    (copied / "kernels" / "mlir" / "cpu" / "script.py").rename(copied / "moved.py")
    with pytest.raises(LookupError, match=r"kernels\.mlir\.cpu\.script not below"):
        hashed()


TEMPLATE, MODULE = (
    "kernels/mlir/transform/named_sequences/lower_vectors.mlir",
    "kernels/arithmetic.py",
)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((TEMPLATE, change) for change in (double, rename, Path.unlink)),
        *((MODULE, change) for change in (rename, Path.unlink)),
    ],
)
def test_so_is_a_source_that_comes_goes_or_moves(
    change: Callable[[Path], None], name: str, copied: Path
) -> None:
    before = hashed()
    change(copied / name)
    assert hashed() != before


def test_so_is_a_module_that_a_source_begins_to_import(copied: Path) -> None:
    (copied / "kernels" / "native" / "another.py").write_text("FACTOR = 2\n")
    plan = copied / "kernels" / "native" / "plan.py"
    plan.write_text(f"{plan.read_text()}\n\nfrom tilewise.kernels.native.another import FACTOR\n")
    before = hashed()
    (copied / "kernels" / "native" / "another.py").write_text("FACTOR = 3\n")
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
