"""How much of a processor a service takes for the calls of runs.

    python -m tests.service.cluster.calls_of_runs --calls 250

The service and who calls it are one process, without a network between them: what the client takes
is counted in, and is the same for every call. `/healthz` is a call that asks nobody anything.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence

import httpx

from tests.service import fakes
from tests.service.conftest import PROBLEM, TOOLCHAIN
from tilewise.kernels.problem import parse_problem
from tilewise.search.records import TuneRequest
from tilewise.service.app import create_app
from tilewise.service.db import Sessions, make_engine, schema, writing
from tilewise.service.db.session import make_sessions
from tilewise.service.host.machine import MachineInfo, examine_here
from tilewise.service.host.process_identity import me
from tilewise.service.jobs import queue
from tilewise.service.runs import offers
from tilewise.service.runs.offers import Offer
from tilewise.service.runs.wire.orders import BeginWire
from tilewise.service.runs.wire.trials import AddWire, TrialWire
from tilewise.service.settings import Settings

HOST = "service"


def offered(sessions: Sessions, machine: MachineInfo) -> Offer:
    """A job that was given to a worker."""
    request = TuneRequest(trials=100_000)
    with writing(sessions) as session:
        queue.create_or_join(session, parse_problem(PROBLEM), machine.target, request, TOOLCHAIN)
    with writing(sessions) as session:
        made = offers.make(session, "tcp://10.0.0.2:4000", machine.targets, TOOLCHAIN, me())
    assert made is not None
    return made


async def milliseconds(call: Callable[[int], Awaitable[httpx.Response]], calls: int) -> float:
    """Of the processor, for a call; the first ones load what all need."""
    warm = calls // 2
    for number in range(warm):
        (await call(number)).raise_for_status()
    began = time.process_time()
    for number in range(warm, warm + calls):
        (await call(number)).raise_for_status()
    return 1e3 * (time.process_time() - began) / calls


async def measure(folder: str, calls: int) -> str:
    """A line for each kind of call."""
    url = f"sqlite:///{folder}/calls.db"
    schema.prepare(url)
    machine, engine = examine_here(), make_engine(url)
    offer = offered(make_sessions(engine), machine)
    settings = Settings(db=url, allowed_hosts=HOST, requests_per_minute=0)
    app = create_app(settings, 0, machine=machine, toolchain=TOOLCHAIN)
    headers = {"Authorization": f"Bearer {offer.token}", "Content-Type": "application/json"}
    run = f"/v1/runs/{offer.job_id}"

    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url=f"http://{HOST}", headers=headers
        ) as client,
    ):
        begun = BeginWire(owner=me(), toolchain=TOOLCHAIN).model_dump_json()
        (await client.post(f"{run}/begin", content=begun)).raise_for_status()

        async def add(number: int) -> httpx.Response:
            said = AddWire(epoch=1, trial=TrialWire.of(fakes.trial(number)))
            return await client.post(f"{run}/trials", content=said.model_dump_json())

        asked: dict[str, Callable[[int], Awaitable[httpx.Response]]] = {
            "a trial": add,
            "alive": lambda _: client.post(f"{run}/alive"),
            "/healthz": lambda _: client.get("/healthz"),
        }
        found = {name: await milliseconds(call, calls) for name, call in asked.items()}
    engine.dispose()
    return "".join(f"{name:10}{taken:6.2f} ms\n" for name, taken in found.items())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=250, help="of each kind")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(asyncio.run(measure(folder, options.calls)))


if __name__ == "__main__":
    main()
