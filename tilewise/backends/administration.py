"""The service and its database on this machine, for those who run them."""

from service.db import schema
from service.db.session import make_engine
from tilewise.backends.base import Json
from tilewise.backends.service_errors import settings, told


def serve(host: str, port: int, workers: int, database_url: str | None) -> None:
    """Serve until interrupted."""
    from service.server import serve as run

    with told():
        run(host, port, workers, settings(database_url))


def database(action: str, database_url: str | None) -> Json:
    """Upgrade or check; BadInputError when the database is not as it must be."""
    with told():
        url = settings(database_url).db
        if action == "upgrade":
            schema.upgrade(url)
        engine = make_engine(url)
        try:
            schema.check(engine)
        finally:
            engine.dispose()
        return {"database": engine.url.render_as_string(), "schema": schema.HEAD}
