"""The manifest: what an archive is, and what its members have to be."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tilewise.service.archive.fields import Moment, Sha256
from tilewise.service.archive.lines import MEMBERS, SINCE
from tilewise.service.errors import ArchiveError

FORMAT = 4
MANIFEST = "manifest.json"


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Member(_Part):
    """A member: its lines, its bytes, and their SHA-256, hex."""

    rows: Annotated[int, Field(ge=0)]
    bytes: Annotated[int, Field(ge=0)]
    sha256: Sha256


class Manifest(_Part):
    """What an archive says of itself.

    Attributes:
        format: of the archive; a reader takes its own and all before it.
        written_by: the program, such as `tilewise 0.2.0`.
        db_schema: version of the database that it was written from.
        created_at: the moment of which it is.
        selection: what was asked for, by option; empty for the whole store.
        left_out: damaged rows that the store had, by member.
        members: every other member.
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
    """A manifest from its JSON.

    Raises:
        ArchiveError: it is none, or one of a format that this version does not know.
    """
    try:
        found = _Format.model_validate_json(text).format
        if not 1 <= found <= FORMAT:
            raise ArchiveError(
                f"it has format {found}, and this tilewise reads 1 to {FORMAT}; install the "
                "tilewise that wrote it or a newer one (pip install -U tilewise)"
            )
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise ArchiveError(f"{MANIFEST}: {said(error)}") from error
    expected = {name for name in MEMBERS if SINCE.get(name, 1) <= found}
    if set(manifest.members) != expected:
        odd = ", ".join(sorted(set(manifest.members) ^ expected))
        raise ArchiveError(f"{MANIFEST} does not list the members of format {found}: {odd:.200}")
    return manifest


def said(error: ValidationError) -> str:
    """The first fault as one phrase that names the field."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{place}: {first['msg']}" if place else str(first["msg"])
