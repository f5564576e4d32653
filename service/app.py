"""The application: assembly of its parts, start and stop."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Engine

from tilewise.kernels.system.toolchain import identity
from tilewise.service.api import problem_details
from tilewise.service.api.access.gate import Gate, GateRules
from tilewise.service.api.access.tokens import RUNS_KNOWN_S, TokenBook, of_client, of_run
from tilewise.service.api.answer_cache import AnswerCache
from tilewise.service.api.events.feeds import Feeds
from tilewise.service.api.events.news import NewsReader
from tilewise.service.api.executors import PATIENCE_S
from tilewise.service.api.middleware import BodyLimit, HeadAsGet
from tilewise.service.api.openapi import DescribedApp
from tilewise.service.api.routes import (
    events,
    jobs,
    modules,
    networks,
    plans,
    runs,
    schedules,
    status,
    suites,
    tokens,
    trials,
)
from tilewise.service.api.services import OTHERS, READERS, WRITERS, Executors, Services
from tilewise.service.api.single_flight import SingleFlight
from tilewise.service.cluster.driver_process import DriverProcess
from tilewise.service.dashboard import assets, live
from tilewise.service.dashboard import plans as plan_pages
from tilewise.service.dashboard import suites as suite_pages
from tilewise.service.dashboard.live import POLL_S, OverviewReader
from tilewise.service.dashboard.rendering import as_page
from tilewise.service.dashboard.routes import code, compare, forms, pages, plots
from tilewise.service.db import schema
from tilewise.service.db.changes import Changes
from tilewise.service.db.session import STATEMENT_S, make_engine, make_sessions, reading
from tilewise.service.errors import DatabaseError
from tilewise.service.host.machine import MachineInfo, examine
from tilewise.service.jobs.rechecks import OffPeak
from tilewise.service.listening import most_streams
from tilewise.service.settings import Settings
from tilewise.service.telemetry.metrics import Metrics, StoredMetrics
from tilewise.service.telemetry.requests import Observed
from tilewise.service.telemetry.traces import Tracing, start_tracing
from tilewise.service.workers.pool import Pool, PoolWork
from tilewise.version import VERSION

PROBE_PATIENCE_S = 2.0
ROUTERS = (
    *(part.router for part in (jobs, events, trials, schedules, modules, networks, plans)),
    events.plans,
    *(part.router for part in (suites, tokens, status, runs)),
    *(seen.router for seen in (pages, code, compare, forms, plots, live, assets, suite_pages)),
    *(plan_pages.router, suite_pages.plots),
)
# Children at once: each takes a core from what is being timed.
PRINTERS, PROVERS, READERS_OF_MODULES = 2, 1, 1
MOST_MODULES = 8  # that wait or are read, each held in memory

log = logging.getLogger(__name__)


def create_app(
    settings: Settings,
    workers: int = 1,
    *,
    machine: MachineInfo | None = None,
    toolchain: str | None = None,
    worker_arguments: Sequence[str] = (),
    measures_peaks: bool = False,
) -> FastAPI:
    """Return the service as an ASGI application; nothing is opened before it starts.

    The start upgrades an empty database and refuses another schema. With a read-only database there
    are no workers. `workers` 0 queues jobs only. `machine` and `toolchain` are examined by default;
    `worker_arguments` go to `python -m tilewise.service.workers`; `measures_peaks` has idle workers
    measure this machine.
    """
    present = toolchain or identity()
    metrics, tracing = Metrics(VERSION, present), start_tracing("service")

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        here = machine or examine()
        off_peak = OffPeak.of(settings.recheck_hours, settings.recheck_seconds)
        work = PoolWork(
            here.targets, present, workers, worker_arguments, here, measures_peaks, off_peak
        )
        services = await run_in_threadpool(_open, settings, here, work, metrics)
        app.state.services = services
        if services.pool is not None:
            services.pool.start()
        try:
            yield
        finally:
            await _close(services)
            if tracing is not None:
                await run_in_threadpool(tracing.stop)

    app = DescribedApp(
        title="Tilewise",
        summary="Tiling and packing schedules, tuned and proven on real MLIR",
        version=VERSION,
        lifespan=lifespan,
        docs_url=None,  # the framework's pages load scripts from another host
        redoc_url=None,
        redirect_slashes=False,  # it would redirect to whatever host the client named
    )
    _build(app, settings, metrics, tracing)
    return app


def _build(app: FastAPI, settings: Settings, metrics: Metrics, tracing: Tracing | None) -> None:
    """Add routes, error handlers and middleware; the last middleware is the outermost."""
    # Not by `include_router`, which prepares every route again for each application.
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    problem_details.install(app, as_page)
    app.add_middleware(
        BodyLimit,
        most_bytes=settings.body_bytes,
        most_seconds=settings.body_seconds,
        most_bytes_at=dict.fromkeys(modules.PATHS, settings.module_bytes),
        most_bytes_in_flight=settings.bodies_bytes,
    )
    app.add_middleware(AnswerCache)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Gate, rules=_rules(settings), as_page=as_page)
    app.add_middleware(Observed, metrics=metrics, tracing=tracing)


def _rules(settings: Settings) -> GateRules:
    return GateRules(
        needs_token=settings.require_tokens,
        allowed_hosts=settings.host_names,
        requests_per_minute=settings.requests_per_minute,
    )


def stop_waiting(app: FastAPI) -> None:
    """Answer waiting requests before the service stops."""
    services: Services | None = getattr(app.state, "services", None)
    if services is not None:
        _release(services)


def _open(settings: Settings, here: MachineInfo, work: PoolWork, metrics: Metrics) -> Services:
    schema.prepare(settings.db)
    engine = make_engine(
        settings.db,
        connections=READERS + WRITERS + OTHERS,
        patience_s=PATIENCE_S,
        statement_s=STATEMENT_S,
    )
    sessions = make_sessions(engine)
    pool: Pool | DriverProcess | None = None
    if work.workers and _is_writable(engine):
        pool = (
            DriverProcess(settings, work.arguments)
            if settings.scheduler
            else Pool(sessions, settings.db, work)
        )
    executors, changes = Executors(), Changes(settings.db)
    streams = partial(
        Feeds, state=changes.number, longest_s=settings.stream_seconds, most_streams=most_streams()
    )
    stored_metrics = StoredMetrics()
    with reading(sessions) as session:
        stored_metrics.begin(session)
    metrics.registry.register(stored_metrics)
    return Services(
        engine=engine,
        prober=make_engine(
            settings.db, connections=1, patience_s=PROBE_PATIENCE_S, statement_s=STATEMENT_S
        ),
        sessions=sessions,
        machine=here,
        toolchain=work.toolchain,
        pool=pool,
        has_cluster=bool(settings.scheduler),
        executors=executors,
        kernels=SingleFlight("kernels", PRINTERS, keeps_results=True),
        proofs=SingleFlight("proofs", PROVERS, keeps_results=False),
        modules=SingleFlight(
            "modules",
            READERS_OF_MODULES,
            keeps_results=True,
            most=MOST_MODULES,
            most_bytes=max(settings.bodies_bytes, settings.module_bytes),
        ),
        feeds=streams(NewsReader(executors.reads, sessions)),
        overviews=streams(OverviewReader(executors.reads, sessions), poll_s=POLL_S),
        changes=changes,
        tokens=TokenBook(sessions, of_client, executors.reads, executors.writes),
        run_tokens=TokenBook(sessions, of_run, executors.reads, known_s=RUNS_KNOWN_S),
        metrics=metrics,
        stored_metrics=stored_metrics,
        jobs_in_flight=settings.jobs_in_flight,
    )


def _release(services: Services) -> None:
    """Release all waiting requests; may be called from a signal handler."""
    for part in (services.feeds, services.overviews):
        part.close()
    for shared in (services.kernels, services.proofs, services.modules):
        shared.release()


async def _close(services: Services) -> None:
    _release(services)
    for shared in (services.kernels, services.proofs, services.modules):
        await shared.close()
    if services.pool is not None:
        await run_in_threadpool(services.pool.stop)
    services.changes.close()
    for engine in (services.engine, services.prober):
        engine.dispose()


def _is_writable(engine: Engine) -> bool:
    try:
        schema.check_writable(engine)
    except DatabaseError as error:
        log.warning("%s; serving what is stored, without workers", error)
        return False
    return True
