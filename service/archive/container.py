"""The container of an archive: a zip of JSON lines, and its manifest."""

import hashlib
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tilewise.service.archive.fields import Moment, Sha256
from tilewise.service.archive.lines import MEMBERS, SINCE
from tilewise.service.errors import ArchiveError

FORMAT = 5
MANIFEST = "manifest.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Member(_Part):
    """A member: its lines, its bytes, and their SHA-256, hex."""

    rows: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256


class Manifest(_Part):
    """The manifest of an archive.

    A reader accepts its own `format` and earlier ones. `created_at` is the moment of the snapshot,
    `selection` the options of the export, `left_out` the number of damaged rows by member.
    """

    format: int
    written_by: str
    db_schema: str
    created_at: Moment
    selection: dict[str, list[str]]
    left_out: dict[str, int]
    members: dict[str, Member]


class _Format(BaseModel):
    """The one field that manifests of every format have."""

    model_config = ConfigDict(strict=True)

    format: int


def read_manifest(text: bytes) -> Manifest:
    """Parse a manifest; raise ArchiveError if it is none or of an unknown format."""
    try:
        found = _Format.model_validate_json(text).format
        if not 1 <= found <= FORMAT:
            raise ArchiveError(
                f"it has format {found}, and this tilewise reads 1 to {FORMAT}; install the "
                "tilewise that wrote it or a newer one (pip install -U tilewise)"
            )
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise ArchiveError(f"{MANIFEST}: {describe(error)}") from error
    expected = {name for name in MEMBERS if SINCE.get(name, 1) <= found}
    if set(manifest.members) != expected:
        odd = ", ".join(sorted(set(manifest.members) ^ expected))
        raise ArchiveError(f"{MANIFEST} does not list the members of format {found}: {odd:.200}")
    return manifest


def describe(error: ValidationError) -> str:
    """Return the first error as one phrase that names the field."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])


LONGEST_LINE = 32 * 1024**2
LONGEST_MANIFEST = 1024**2
# Samples are random numbers, so that a store shrinks to a fifth or so. What shrinks this much more
# was made to fill a disk or to keep a machine busy.
MOST_SHRUNK, NEVER_TOO_MUCH = 200, 64 * 1024**2
_MADE = (1980, 1, 1, 0, 0, 0)  # the moment of every member: the same store gives the same bytes
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
# What `zipfile` raises of a file that is none, is cut off, or has wrong headers: RuntimeError and
# kinds of it for encryption and for what it does not unpack.
_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, EOFError, RuntimeError),
    *(ValueError, OverflowError, UnicodeError),
)


class LeftError(ArchiveError):
    """The file changed after it was checked, and a part of it was imported."""


class ArchiveWriter:
    """Write the members of an archive one after the other, and the manifest at the end."""

    def __init__(self, zipped: zipfile.ZipFile) -> None:
        self._zip = zipped
        self.members: dict[str, Member] = {}

    @contextmanager
    def member(self, name: str) -> Iterator[Callable[[bytes], None]]:
        """Begin a member; yield a function that adds a line to it."""
        rows = size = 0
        digest = hashlib.sha256()
        with self._zip.open(_entry(name), "w", force_zip64=True) as file:

            def add(line: bytes) -> None:
                nonlocal rows, size
                ended = line + b"\n"
                file.write(ended)
                digest.update(ended)
                rows, size = rows + 1, size + len(ended)

            yield add
        self.members[name] = Member(rows=rows, bytes=size, sha256=digest.hexdigest())

    def end(self, manifest: Manifest) -> None:
        """Write the manifest."""
        self._zip.writestr(_entry(MANIFEST), manifest.model_dump_json(indent=2) + "\n")


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _MADE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


class Reader:
    """Read an archive.

    Raises ArchiveError if it is none, of an unknown format, or would unpack to too much.
    """

    def __init__(self, file: IO[bytes]) -> None:
        size = file.seek(0, io.SEEK_END)
        with _naming("it is no archive of `tilewise store export`, or was cut off"):
            self._zip = zipfile.ZipFile(file)
            entries = self._zip.infolist()
        self._entries = {entry.filename: entry for entry in entries}
        self._require(entries, {MANIFEST}, set(self._entries))  # a later format has more members
        _check_entries(entries, size)
        with _naming(MANIFEST), self._zip.open(MANIFEST) as opened:
            text = opened.read(LONGEST_MANIFEST + 1)
        self.manifest = read_manifest(text)
        stated = {MANIFEST, *self.manifest.members}
        self._require(entries, stated, stated)

    def _require(self, entries: list[zipfile.ZipInfo], least: set[str], most: set[str]) -> None:
        """Raise unless each member is there once, and all of `least` and none beyond `most` are."""
        found = set(self._entries)
        odd = sorted((least - found) | (found - most))
        if len(entries) != len(found):
            odd.append("a member twice")
        if odd:
            raise ArchiveError(f"it does not have the members of an archive: {odd[0]!r:.80}")

    def check(self) -> None:
        """Read all of it; raise ArchiveError if a member differs from the manifest."""
        for name in self.manifest.members:
            for _ in self.lines(name):
                pass

    def lines(self, name: str) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a member, numbered from 1.

        Raises ArchiveError, possibly at the end, if the member differs from the manifest.
        """
        stated = self.manifest.members[name]
        rows = size = 0
        digest = hashlib.sha256()
        with _naming(name), self._zip.open(name) as file:
            while line := file.readline(LONGEST_LINE + 1):
                rows, size = rows + 1, size + len(line)
                _check_line(line, f"{name} line {rows}")
                if size > stated.bytes or rows > stated.rows:
                    break
                digest.update(line)
                yield rows, line
        found = (rows, size, digest.hexdigest())
        if found != (stated.rows, stated.bytes, stated.sha256):
            raise ArchiveError(
                f"{name} does not have the SHA-256 of the manifest; copy the file again"
            )


@contextmanager
def opened(path: Path) -> Iterator[Reader]:
    """Open an archive; raise ArchiveError if it cannot be read or is none."""
    try:
        with path.open("rb") as file:
            yield Reader(file)
    except LeftError as error:
        raise LeftError(f"archive {str(path)!r}: {error}") from error
    except ArchiveError as error:
        raise ArchiveError(f"archive {str(path)!r}: {error}; nothing was changed") from error


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    for entry in entries:
        if entry.flag_bits & _ENCRYPTED or entry.compress_type not in _KINDS:
            raise ArchiveError(f"{entry.filename} is encrypted, or compressed in another way")
        if entry.filename == MANIFEST and entry.file_size > LONGEST_MANIFEST:
            raise ArchiveError(f"{MANIFEST} has more than {LONGEST_MANIFEST} bytes")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > max(NEVER_TOO_MUCH, MOST_SHRUNK * size):
        raise ArchiveError(
            f"it unpacks to {unpacked} bytes, more than {MOST_SHRUNK} times the file; "
            "no store shrinks like that"
        )


def _check_line(line: bytes, place: str) -> None:
    if not line.endswith(b"\n"):
        too_long = len(line) > LONGEST_LINE
        raise ArchiveError(f"{place} {'is too long' if too_long else 'is cut off'}")
    if holds_nul(line):
        raise ArchiveError(f"{place} holds the character NUL, which no text of a store has")


def holds_nul(line: bytes) -> bool:
    """Return whether a JSON line contains NUL, which PostgreSQL text cannot store."""
    return b"\\u0000" in line and _NUL.search(line) is not None


@contextmanager
def _naming(what: str) -> Iterator[None]:
    try:
        yield
    except _BROKEN as error:
        raise ArchiveError(f"{what}: {str(error) or type(error).__name__}") from error
