"""The application: its parts put together, started and stopped."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Engine

from kernels.toolchain import identity
from service import problem_json
from service.db import schema
from service.db.session import make_engine, make_sessions
from service.errors import DatabaseError
from service.machine import MachineInfo, examine
from service.middleware import BodyLimit, HeadAsGet
from service.pool import Pool, Work
from service.routes import jobs, lookup, schedules, status, trials
from service.services import Services
from service.settings import Settings

log = logging.getLogger(__name__)


def create_app(
    settings: Settings,
    workers: int = 1,
    *,
    machine: MachineInfo | None = None,
    toolchain: str | None = None,
    worker_arguments: Sequence[str] = (),
) -> FastAPI:
    """The service as an ASGI application; nothing is opened before it starts.

    An empty database gets the schema at the start; one of another version stops it with a
    `DatabaseError`. A read-only one is served without workers.

    Args:
        settings: where the database is.
        workers: jobs to run at once; 0 only takes and shows them.
        machine: this machine; None examines it.
        toolchain: identity of the compilers; None asks `kernels.toolchain`.
        worker_arguments: further arguments of `python -m service.worker`.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        services = await run_in_threadpool(
            _open, settings, workers, machine, toolchain or identity(), worker_arguments
        )
        app.state.services = services
        if services.pool is not None:
            services.pool.start()
        try:
            yield
        finally:
            if services.pool is not None:
                await run_in_threadpool(services.pool.stop)
            services.engine.dispose()

    app = FastAPI(
        title="Tilewise",
        summary="Tiling and packing schedules, tuned and proven on real MLIR",
        lifespan=lifespan,
    )
    for part in (jobs, trials, schedules, lookup, status):
        app.include_router(part.router)
    problem_json.install(app)
    app.add_middleware(BodyLimit, most_bytes=settings.body_bytes)
    app.add_middleware(HeadAsGet)
    return app


def _open(
    settings: Settings,
    workers: int,
    machine: MachineInfo | None,
    toolchain: str,
    worker_arguments: Sequence[str],
) -> Services:
    schema.prepare(settings.db)
    engine = make_engine(settings.db)
    sessions = make_sessions(engine)
    here = machine or examine()
    pool = None
    if workers and _is_writable(engine):
        work = Work(here.targets, toolchain, workers, worker_arguments)
        pool = Pool(sessions, settings.db, work)
    return Services(engine, sessions, here, toolchain, pool)


def _is_writable(engine: Engine) -> bool:
    try:
        schema.check_writable(engine)
    except DatabaseError as error:
        log.warning("%s; serving what is stored, without workers", error)
        return False
    return True
