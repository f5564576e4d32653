"""Style sheet, scripts and the bundle, under a path that names their content."""

from fastapi import APIRouter, Response

from tilewise.service.api.lanes import in_lane
from tilewise.service.api.services import ServicesDep
from tilewise.service.dashboard import assets
from tilewise.service.dashboard.rendering import POLICY
from tilewise.service.errors import NotFoundError

FOREVER = {
    "Cache-Control": "public, max-age=31536000, immutable",
    "Content-Encoding": "gzip",
    "Content-Security-Policy": POLICY,
}

router = APIRouter(prefix="/assets", include_in_schema=False)


@router.get("/{version}/{name}")
@in_lane("reads")
def get_asset(version: str, name: str, services: ServicesDep) -> Response:
    """An asset; every browser that runs modules takes gzip."""
    if version != assets.version():
        raise NotFoundError("the dashboard has changed; load the page again")
    if name == assets.BUNDLE:
        return Response(assets.bundle(), media_type="text/javascript", headers=FOREVER)
    kind, data = assets.asset(name)
    return Response(data, media_type=kind, headers=FOREVER)
