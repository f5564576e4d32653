"""A file that is damaged, absent or of another folder is named."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.search.networks.standalone.written import Drawn
from tilewise.search.networks.loader import network as loader

pytest.importorskip("iree.compiler", reason="iree-base-compiler is not installed")

DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "no text": ("network.json", lambda _: b"\xff", "cannot be read"),
    "no JSON": ("network.json", lambda data: data[:-9], "cannot be read"),
    "no object": ("network.json", lambda _: b"[]", "cannot be read"),
    "no name": ("network.json", lambda data: data.replace(b'"name"', b'"a"'), "KeyError: 'name'"),
    "a size as text": (
        "network.json", lambda data: data.replace(b'"barrier": ', b'"barrier": null, "a": '),
        "barrier is None",
    ),
    "no shape": ("network.json", lambda data: data.replace(b'"shape"', b'"a"'), "'shape'"),
    "no digest": ("network.json", lambda data: data.replace(b".bin", b""), "weights.bin"),
    "another schema": (
        "network.json", lambda data: data.replace(b"network/1", b"network/0"),
        "schema 'tilewise/network/0' is not tilewise/network/1",
    ),
    "no code": ("network.so", lambda _: b"", "is damaged, or of another folder"),
    "other code": ("network.so", lambda data: data + b"\0", "is damaged, or of another folder"),
    "short weights": ("weights.bin", lambda data: data[:-1], "has .* it is damaged"),
    "other weights": ("weights.bin", lambda data: data[::-1], "is damaged, or of another folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_file_is_named(case: str, drawn: Drawn, tmp_path: Path) -> None:
    name, damage, told = DAMAGES[case]
    folder = tmp_path / "net"
    shutil.copytree(drawn.folder, folder)
    (folder / name).write_bytes(damage((folder / name).read_bytes()))
    with pytest.raises(RuntimeError, match=f"{name}.*{told}"):
        loader.load(folder)
    (folder / name).unlink()
    with pytest.raises(RuntimeError, match=f"{name} cannot be read .*; write the folder again by"):
        loader.load(folder)


def test_weights_that_stay_in_their_file_are_not_read_ahead(drawn: Drawn, tmp_path: Path) -> None:
    folder = tmp_path / "net"
    shutil.copytree(drawn.folder, folder)
    weights = (folder / "weights.bin").read_bytes()
    (folder / "weights.bin").write_bytes(weights[::-1])
    loader.load(folder, mapped=True)
    (folder / "weights.bin").write_bytes(weights[:-1])
    with pytest.raises(RuntimeError, match=r"weights.bin has .* it is damaged"):
        loader.load(folder, mapped=True)
