"""Archives that were edited, as whoever knows the format would edit them."""

import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Members = dict[str, bytes]


def members_of(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, members: Members, compression: int = zipfile.ZIP_DEFLATED) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def sealed(members: Members) -> Members:
    """The members with a manifest that agrees with them."""
    manifest = json.loads(members["manifest.json"])
    for name, data in members.items():
        if name != "manifest.json":
            manifest["members"][name] = {
                "rows": data.count(b"\n"),
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
    return {**members, "manifest.json": json.dumps(manifest).encode()}


def edited(path: Path, member: str, edit: Callable[[list[Json]], object]) -> None:
    """Edit the lines of a member as JSON, and seal the archive anew."""
    members = members_of(path)
    lines = [json.loads(line) for line in members[member].splitlines()]
    edit(lines)
    members[member] = "".join(json.dumps(line) + "\n" for line in lines).encode()
    write(path, sealed(members))
