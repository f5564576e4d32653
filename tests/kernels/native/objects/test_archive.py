"""Archives as the system's own tools read them, and what cannot be one."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tilewise.kernels.native.objects.make import make_object
from tilewise.kernels.native.objects.object_files import Elf, archive
from tilewise.kernels.problem import Matmul
from tilewise.kernels.schedule import Register, Schedule
from tilewise.kernels.target import Target

AR = shutil.which("ar")
NM = shutil.which("nm")


def members(host: Target) -> dict[str, bytes]:
    """Two objects, of which one has a name too long for a header."""
    names = {"short.o": 2, "a_name_that_is_longer_than_a_header_takes.o": 3}
    schedule = Schedule((Register(2, 16),))
    return {
        name: make_object(Matmul(m=m, n=16, k=5, dtype="f32"), schedule, host).object
        for name, m in names.items()
    }


@pytest.mark.skipif(
    AR is None or NM is None,
    reason="the archive is read back with ar and nm, and this machine lacks one of them",
)
def test_binutils_reads_members_and_symbols(host: Target, tmp_path: Path) -> None:
    assert AR is not None and NM is not None
    made = members(host)
    path = tmp_path / "lib.a"
    path.write_bytes(archive(made))
    listed = subprocess.run([AR, "t", path], capture_output=True, text=True, check=True).stdout
    assert listed.split() == list(made)
    for name, data in made.items():
        assert subprocess.run([AR, "p", path, name], capture_output=True, check=True).stdout == data
    index = subprocess.run([NM, "-s", path], capture_output=True, text=True, check=True).stdout
    for name, data in made.items():
        for symbol in Elf.read(data).defined:
            assert f"{symbol} in {name}" in index


@pytest.mark.skipif(
    AR is None, reason="the archive is compared with one that ar makes, and this machine has none"
)
def test_it_is_as_long_as_what_ar_makes(host: Target, tmp_path: Path) -> None:
    """It differs in the order of symbols, in the fields that nobody reads, and in no length."""
    assert AR is not None
    made = members(host)
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    subprocess.run([AR, "rcsD", "theirs.a", *made], cwd=tmp_path, check=True)
    theirs, ours = (tmp_path / "theirs.a").read_bytes(), archive(made)
    for name, data in made.items():
        assert ours.index(data) == theirs.index(data), name


def test_what_cannot_be_an_archive(host: Target) -> None:
    made = members(host)
    (name, data), *_ = made.items()
    with pytest.raises(ValueError, match="defined by two members"):
        archive({name: data, "other.o": data})
    with pytest.raises(ValueError, match="cannot be the name"):
        archive({"a/b.o": data})
    with pytest.raises(ValueError, match="no 64-bit"):
        archive({"text.o": b"text"})
