"""The archives of schedules that Tilewise ships, one for each measured processor."""

from pathlib import Path

from tilewise.kernels.target import detect
from tilewise.service.errors import ArchiveError

TABLES = Path(__file__).with_name("tables")
BUILTIN = "builtin"


def name_here() -> str:
    """Return the name of this machine's archive: its processor, and the features that differ."""
    here = detect().named
    return here.cpu + "".join(here.differences)


def shipped(name: str) -> Path:
    """Return the archive of a name, of this machine for none; raise ArchiveError if there is none.

    Kernels of another processor may not run here, so nothing else is taken in its place.
    """
    known = {path.stem: path for path in sorted(TABLES.glob("*.zip"))}
    wanted = name or name_here()
    if wanted not in known:
        others = ", ".join(f"{BUILTIN}:{one}" for one in known) or "none"
        raise ArchiveError(f"no schedules are shipped for {wanted:.100}; archives: {others}")
    return known[wanted]
