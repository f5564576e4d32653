"""Children, regular files and typed JSON, and what tells one toolchain from another."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
import pytest

from tilewise.kernels.system import files, toolchain
from tilewise.kernels.system.children import (
    ROOT,
    child_command,
    child_environment,
    end_group,
    has_ended,
)
from tilewise.kernels.system.files import read_regular
from tilewise.kernels.system.toolchain import COMPILERS, generator_hash, identity, sources
from tilewise.kernels.system.typed_json import from_json, to_json

PATIENCE_S = 60.0


def wait_until_gone(pid: int) -> None:
    """Wait until no process of this pid runs; one that nobody has waited for runs no more."""
    end = time.monotonic() + PATIENCE_S
    while psutil.pid_exists(pid):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        assert time.monotonic() < end, f"process {pid} is still there"
        time.sleep(0.02)


def write_module(folder: Path, text: str) -> dict[str, str]:
    """A module `told` that a child can run; the environment in which it finds it."""
    (folder / "told.py").write_text(text)
    environment = child_environment()
    return {**environment, "PYTHONPATH": f"{environment['PYTHONPATH']}:{folder}"}


def test_a_child_of_a_parent_that_is_gone_imports_nothing(tmp_path: Path) -> None:
    environment = write_module(tmp_path, "print('it runs')")
    command = [str(os.getpid() + 1) if c == str(os.getpid()) else c for c in child_command("told")]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (out.returncode, out.stdout) == (1, "")
    assert f"the process {os.getpid() + 1} that started this one is gone" in out.stderr


STARTS = """
import os, signal, subprocess, sys
from tilewise.kernels.system.children import child_command
child = subprocess.Popen(child_command("told"), stdout=subprocess.PIPE, start_new_session=True)
if sys.argv[1] == "later":
    child.stdout.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_child_ends_with_its_parent_at_any_moment(tmp_path: Path) -> None:
    text = "import time\nprint('here', flush=True)\ntime.sleep(600)"
    environment = write_module(tmp_path, text)
    for moment in ("at once", "later"):
        command = [sys.executable, "-c", STARTS, moment]
        out = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=False)
        wait_until_gone(int(out.stdout))


def test_a_group_is_ended_after_its_leader(tmp_path: Path) -> None:
    start = "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', 'input()'])"
    leader = subprocess.Popen(
        [sys.executable, "-c", f"{start}; print(p.pid)"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert leader.stdout is not None
    left = int(leader.stdout.readline())
    end = time.monotonic() + PATIENCE_S
    while not has_ended(leader):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert psutil.Process(left).is_running()
    end_group(leader)
    assert leader.returncode == 0
    wait_until_gone(left)


def test_a_regular_file_is_read(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert read_regular(path) == b"content"
    assert read_regular(path, len(b"content")) == b"content"
    (tmp_path / "link").symlink_to(path)
    assert read_regular(tmp_path / "link", follows_links=True) == b"content"
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        files.write_whole(tmp_path / "folder", b"content")
    assert {one.name for one in tmp_path.iterdir()} == {"file", "link", "folder"}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("follows_links", [False, True])
@pytest.mark.parametrize("kind", ["link", "device", "fifo", "socket", "folder", "large", "absent"])
def test_anything_else_is_an_error_at_once(tmp_path: Path, kind: str, follows_links: bool):
    path = Path("/dev/zero") if kind == "device" else tmp_path / kind
    with socket.socket(socket.AF_UNIX) as bound:
        make: dict[str, Callable[[], object]] = {
            "link": lambda: path.symlink_to("/dev/zero"),
            "fifo": lambda: os.mkfifo(path),
            "socket": lambda: bound.bind(str(path)),
            "folder": path.mkdir,
            "large": lambda: path.write_bytes(b"x" * 101),
        }
        make.get(kind, lambda: None)()
    with pytest.raises(OSError, match=r"regular|directory|Is a|more than 100|No such"):
        read_regular(path, 100, follows_links=follows_links)


def test_a_temporary_cache_of_somebody_else_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("TILEWISE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/none")
    named = tmp_path / f"tilewise-{os.getuid()}"
    named.mkdir()
    named.chmod(0o777)  # what anybody can write
    files._temporary.cache_clear()
    try:
        found = files.cache_dir()
        assert found != named and found.stat().st_mode & 0o777 == 0o700
        named.rmdir()
        files._temporary.cache_clear()
        assert files.cache_dir() == named and named.stat().st_mode & 0o777 == 0o700
    finally:
        files._temporary.cache_clear()


@dataclass(frozen=True)
class Part:
    times: tuple[float, ...]
    name: str | None = None


@dataclass(frozen=True)
class Whole:
    part: Part
    parts: dict[str, Part]
    count: int
    is_right: bool
    state: Literal["timed", "failed"]
    speed: float


WHOLE = Whole(Part((1.0, 2.5), "a"), {"b": Part(())}, 3, True, "timed", 4.0)


def test_what_was_said_is_what_is_read() -> None:
    assert from_json(Whole, json.loads(json.dumps(to_json(WHOLE)))) == WHOLE
    whole = json.loads(json.dumps(to_json(WHOLE))) | {"speed": 4}
    assert from_json(Whole, whole) == WHOLE, "a whole number is a number"


@pytest.mark.parametrize(("change", "message"), [
    ({"count": 3.5}, "Whole.count is 3.5, not of type int"),
    ({"count": True}, "Whole.count is True, not of type int"),
    ({"is_right": 1}, "Whole.is_right is 1, not of type bool"),
    ({"speed": "fast"}, "Whole.speed is 'fast', not of type float"),
    ({"speed": None}, "Whole.speed is None, not of type float"),
    ({"state": "lost"}, "Whole.state is 'lost', not one of timed, failed"),
    ({"part": {"times": [1.0, "x"], "name": None}}, "Whole.part.times[1] is 'x'"),
    ({"parts": {"b": []}}, "Whole.parts.b is [], not of type dict"),
    ({"more": 1}, "Whole has the fields"),
])  # fmt: skip
def test_what_is_of_another_shape_is_refused_by_name(change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        from_json(Whole, json.loads(json.dumps(to_json(WHOLE))) | change)
    with pytest.raises(ValueError, match="Whole has the fields"):
        from_json(Whole, {name: one for name, one in to_json(WHOLE).items() if name != "part"})


GENERATOR = [
    "kernels/native/export/templates/module.py.tmpl",
    "kernels/native/microkernels/outer_product.py", "kernels/native/objects/templates/header.h",
    "kernels/mlir/air/script.py",
    "kernels/mlir/transform/named_sequences/fragments/sink_casts.mlir",
    "kernels/oracle/reference.py", "kernels/problem/keys.py", "kernels/target/cores.py",
    "search/runner/child/accuracy.py",
]  # fmt: skip
ENTRY_POINTS = [
    *(f"native.{name}" for name in ("export.module", "objects.make", "objects.proof.child")),
    *("native.microbench", "mlir.cpu.script", "mlir.air.prove", "mlir.tuning_spec.prove"),
    *("mlir.proof.prove", "mlir.proof.child.stages"),
]


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sources, for a test to change."""
    for package in ("kernels", "search"):
        to, ignored = tmp_path / "tilewise" / package, shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "tilewise" / package, to, ignore=ignored)
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


def test_the_hash_is_of_the_sources_anywhere(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = hashed()
    (copied / "kernels" / "native" / "notes.txt").write_text("no source")
    (copied / "kernels" / "native" / "unused.py").write_text("nothing imports it")
    (copied / "kernels" / "errors.py").write_text("what the generator says, and not what it makes")
    assert hashed() == here
    monkeypatch.setattr(toolchain, "ROOT", ROOT)
    assert hashed() == here


def test_every_module_that_generating_and_judging_loads_is_a_source() -> None:
    """What Python itself loads, of which the list that is found in the text must have all."""
    names = ", ".join(f"tilewise.kernels.{name}" for name in ENTRY_POINTS)
    program = f"import {names}, tilewise.search.runner.child.session, sys; print(*sys.modules)"
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
    counts = any(f"{name}.".startswith(f"{package}.") for package in toolchain.FOLLOWED)
    return counts and not any(f"{name}.".startswith(f"{package}.") for package in toolchain.NEUTRAL)


def test_an_entry_point_that_has_gone_is_an_error(copied: Path) -> None:
    (copied / "kernels" / "mlir" / "cpu" / "script.py").rename(copied / "moved.py")
    with pytest.raises(LookupError, match=r"kernels\.mlir\.cpu\.script not below"):
        hashed()


TEMPLATE = "kernels/mlir/transform/named_sequences/lower_vectors.mlir"
MODULE = "kernels/arithmetic.py"
NO_CODE = [
    "kernels/mlir/frontend/child/onnx.py", "kernels/mlir/network/packing.py",
    "kernels/mlir/op_scripts/packing.py", "kernels/native/assembly.py",
    "search/runner/child/interleaved.py", "search/model/analytical.py",
]  # fmt: skip


@pytest.mark.parametrize(("name", "change"), [
    *((name, edit) for name in NO_CODE),
    *(pytest.param(name, edit, marks=pytest.mark.full) for name in GENERATOR),
    (TEMPLATE, double), (TEMPLATE, rename), (TEMPLATE, Path.unlink), (MODULE, Path.unlink),
])  # fmt: skip
def test_changed_added_moved_and_removed_sources_change_it(change, name, copied) -> None:
    before = hashed()
    change(copied / name)
    assert (hashed() == before) is (name in NO_CODE)


def test_a_module_that_a_source_begins_to_import_changes_it(copied: Path) -> None:
    (copied / "kernels" / "native" / "another.py").write_text("FACTOR = 2\n")
    plan = copied / "kernels" / "native" / "plan.py"
    plan.write_text(f"{plan.read_text()}\n\nfrom tilewise.kernels.native.another import FACTOR\n")
    before = hashed()
    (copied / "kernels" / "native" / "another.py").write_text("FACTOR = 3\n")
    assert hashed() != before


def test_the_identity_names_compilers_and_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {name: f"1.2.{place}" for place, name in enumerate(COMPILERS)}
    monkeypatch.setattr(toolchain.metadata, "version", versions.__getitem__)
    monkeypatch.setattr(toolchain, "generator_hash", lambda: "1f2e3d4c")
    told = [f"{name} {version}" for name, version in versions.items()]
    assert identity.__wrapped__() == ", ".join([*told, "generator 1f2e3d4c"])
    monkeypatch.undo()
    monkeypatch.setattr(toolchain, "COMPILERS", ("no-such-distribution",))
    assert identity.__wrapped__().startswith("no-such-distribution absent, generator ")
