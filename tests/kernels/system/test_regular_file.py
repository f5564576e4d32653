"""Only regular files are read, and caches are not taken from folders of others."""

import os
import socket
import tempfile
from pathlib import Path

import pytest

from tilewise.kernels.system import files
from tilewise.kernels.system.files import read_regular


def test_a_regular_file_is_read(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert read_regular(path) == b"content"
    assert read_regular(path, len(b"content")) == b"content"
    (tmp_path / "link").symlink_to(path)
    assert read_regular(tmp_path / "link", follows_links=True) == b"content"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("follows_links", [False, True])
@pytest.mark.parametrize("kind", ["link", "device", "fifo", "socket", "folder", "large", "absent"])
def test_anything_else_is_an_error_at_once(tmp_path: Path, kind: str, follows_links: bool):
    path = tmp_path / kind
    match kind:
        case "link":
            path.symlink_to("/dev/zero")
        case "device":
            path = Path("/dev/zero")
        case "fifo":
            os.mkfifo(path)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(path))
        case "folder":
            path.mkdir()
        case "large":
            path.write_bytes(b"x" * 101)
    with pytest.raises(OSError, match=r"regular|directory|Is a|more than 100|No such"):
        read_regular(path, 100, follows_links=follows_links)


def test_a_temporary_cache_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
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
