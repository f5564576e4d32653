"""A static library of tuned kernels: archive, C header and manifest, the same bytes each time."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewise.errors import TilewiseError
from tilewise.kernels.problem import parse_any, stem

if TYPE_CHECKING:  # it loads httpx
    from tilewise.schema.results import ObjectFiles

ARCHIVE, HEADER, MANIFEST = "libtilewise.a", "tilewise.h", "manifest.json"
_HEAD = """/* Kernels tuned by Tilewise, in libtilewise.a; manifest.json has their hashes.

{problems}
*/

"""


@dataclass(frozen=True)
class Library:
    """Kernels that programs link, each of another problem, in the order of the archive."""

    kernels: "Sequence[ObjectFiles]"

    def files(self) -> dict[str, bytes]:
        """Return the content of each file; raise TilewiseError if there can be no archive."""
        from tilewise.kernels.native.objects.object_files import archive

        try:
            packed = archive({_member(one): one.object_bytes for one in self.kernels})
        except ValueError as error:
            raise TilewiseError(f"{ARCHIVE}: {error}") from error
        problems = "\n".join(f"   {one.problem}" for one in self.kernels)
        headers = "\n".join(one.header for one in self.kernels)
        header = f"{_HEAD.format(problems=problems)}{headers}".encode()
        manifest = json.dumps(self._manifest(packed, header), indent=2) + "\n"
        return {ARCHIVE: packed, HEADER: header, MANIFEST: manifest.encode()}

    def _manifest(self, packed: bytes, header: bytes) -> dict[str, Any]:
        files = {"archive": (ARCHIVE, packed), "header": (HEADER, header)}
        about = {name: {"path": path, "sha256": _sha256(data), "bytes": len(data)}
                 for name, (path, data) in files.items()}  # fmt: skip
        return {"version": 1, **about, "kernels": [_entry(one) for one in self.kernels]}


def _entry(one: "ObjectFiles") -> dict[str, Any]:
    data = one.object_bytes
    return {
        "problem": one.problem,
        "target": one.target,
        "schedule": one.schedule,
        "symbol": one.symbol,
        "alias": one.alias,
        "member": _member(one),
        "sha256": _sha256(data),
        "header_sha256": _sha256(one.header.encode()),
        "bytes": len(data),
        "toolchain": one.toolchain,
        "features": list(one.features),
        "scratch_bytes": one.scratch_bytes,
        "packed_bytes": one.packed_bytes,
        "parts": one.parts,
        "gflops": round(one.gflops, 2),
        "max_error": one.proof["max_error"],
        "tolerance": one.proof["tolerance"],
    }


def _member(one: "ObjectFiles") -> str:
    return f"{stem(parse_any(one.problem))}.o"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
