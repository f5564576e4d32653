"""Style sheet, scripts and the bundle, under a path that names their content."""

import gzip
import hashlib
import json
from functools import cache
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.resources import files
from pathlib import Path
from threading import Lock

from fastapi import APIRouter, Response

from tilewise.kernels.system.files import cache_dir, keep, kept
from tilewise.service.api.executors import in_executor
from tilewise.service.api.services import ServicesDep
from tilewise.service.errors import NotFoundError
from tilewise.service.host.child import answer_of
from tilewise.service.plots.drawing import COLOURS, VEGA_LITE, config

FOLDER = "tilewise.service.dashboard"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_BYTES = 16 << 20  # of bundles in the cache folder
THEMES, BUNDLE = "themes.js", "vega.js"


@cache
def version() -> str:
    """Return a hash of the current content of all assets."""
    digest = hashlib.sha256(f"{_renderer()} {VEGA_LITE}".encode())
    for name, data in sorted(_files().items()):
        digest.update(name.encode() + data)
    return digest.hexdigest()[:16]


@cache
def asset(name: str) -> tuple[str, bytes]:
    """Return the media type of an asset and its gzipped content; raise NotFoundError."""
    data = _files().get(name)
    if data is None:
        raise NotFoundError(f"there is no asset {name!r}")
    return TYPES[Path(name).suffix], gzip.compress(data, mtime=0)


@cache
def _files() -> dict[str, bytes]:
    folder = files(FOLDER) / "static"
    known = (one for one in folder.iterdir() if one.name.endswith(tuple(TYPES)))
    found = {one.name: one.read_bytes() for one in known}
    themes = json.dumps({theme: config(theme) for theme in COLOURS})
    return {**found, THEMES: f"export default {themes};\n".encode()}


def bundle() -> bytes:
    """Return the gzipped plot library; a child process makes it in a second, then it is cached.

    Raises ConflictError if it cannot be made.
    """
    with _bundling:  # browsers send requests at once, and one child is enough
        return _bundle()


_bundling = Lock()


@cache
def _bundle() -> bytes:
    path = cache_dir() / "assets" / f"vega-{_renderer()}-{VEGA_LITE}.hashed"
    data = kept(path)
    if data is None:
        made = answer_of("tilewise.service.plots.drawing:bundle", "what draws plots")
        data = gzip.compress(made.encode(), mtime=0)
        keep(path, data, MOST_BYTES)
    return data


def _renderer() -> str:
    try:
        return version_of("vl-convert-python")
    except PackageNotFoundError:
        return "none"


POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
FOREVER = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "Content-Encoding": "gzip",
    "Content-Security-Policy": POLICY,
}

router = APIRouter(prefix="/assets", include_in_schema=False)


@router.get("/{named}/{name}")
@in_executor("reads")
def get_asset(named: str, name: str, services: ServicesDep) -> Response:
    """Return an asset, compressed with gzip."""
    if named != version():
        raise NotFoundError("the dashboard has changed; load the page again")
    if name == BUNDLE:
        return Response(bundle(), media_type="text/javascript", headers=FOREVER)
    kind, data = asset(name)
    return Response(data, media_type=kind, headers=FOREVER)
