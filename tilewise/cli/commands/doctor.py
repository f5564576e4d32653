"""`tilewise doctor`: processor, caches, measured limits, toolchain, and what is missing."""

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewise.backends.choose import named_server
from tilewise.cli.command import SERVER, Command
from tilewise.cli.render import print_mapping
from tilewise.kernels.problem import DTYPES
from tilewise.kernels.quoting import without_password
from tilewise.kernels.system.files import cache_dir
from tilewise.kernels.system.toolchain import identity
from tilewise.requirements import BASE, lacking
from tilewise.service.default_database import default_file
from tilewise.service.errors import DatabaseError

if TYPE_CHECKING:
    from tilewise.client import Worker

FEATURES = {
    "import FILE.onnx": "onnx",
    "tune --sampler gp": "gp",
    "bench --peers onednn": "peers",
    "--db postgresql+psycopg://": "postgres",
    "traces": "telemetry",
}
"""What options of commands and variables take beyond what the command itself takes."""
SHOWN_FEATURES = ("avx512f", "avx512vnni", "avx512bf16", "avx2", "fma", "neon")


def doctor(options: argparse.Namespace) -> None:
    """Report hardware, toolchain and missing dependencies of this machine or of a service."""
    server = named_server(options.server)
    if server:
        found = examine_service(server)
    else:
        found = examine(options.commands)
        if not options.json:
            lists = ("ready", "with_server")
            found |= {name: ", ".join(found[name]) for name in lists if name in found}
    print_mapping(found, as_json=options.json)


def examine_service(url: str) -> dict[str, Any]:
    """Return a service's readiness and its workers' machines."""
    from tilewise.client import Client

    with Client(url) as client:
        state, found = client.ready(), client.targets()
    return {
        "server": state.status,
        **state.checks,
        "targets": list(found.targets),
        "workers": [_worker_text(worker) for worker in found.workers],
    }


def _worker_text(worker: "Worker") -> str:
    peaks = ", ".join(f"{dtype} {speed:.1f}" for dtype, speed in worker.peaks.items())
    return (
        f"{worker.host}: {worker.cpu}, {worker.cores} cores, {worker.capacity} jobs at once, "
        f"{worker.toolchain}; peak GFLOP/s {peaks or 'not measured yet'}"
    )


def examine(commands: Sequence[Command]) -> dict[str, Any]:
    """Return facts by name; speeds are measured now if there is a compiler."""
    needed = {command.name: command.extra for command in commands}
    ready = [name for name, extra in needed.items() if not lacking(extra)]
    at_service = [one.name for one in commands if one.is_light_at_service and one.name not in ready]
    url = os.environ.get("TILEWISE_DB")
    try:
        database = without_password(url) if url else f"sqlite:///{default_file()}"
    except DatabaseError as error:
        database = str(error)
    return {
        **({} if lacking("kernels") else _measured()),
        "toolchain": identity(),
        "database": database,
        "cache": str(cache_dir()),
        "ready": ready,
        **({"with_server": at_service} if at_service else {}),
        "missing": _missing(needed),
        "optional": _missing(FEATURES),
    }


def _missing(needed: dict[str, str]) -> list[str]:
    """Return what to install for commands or features that lack it, a line per extra."""
    users: dict[str, list[str]] = {}
    for name, extra in needed.items():
        if lacking(extra):
            users.setdefault(extra, []).append(name)
    return [
        f"{', '.join(lacking(extra))} for {', '.join(names)}: install tilewise[{extra}]"
        for extra, names in users.items()
    ]


def _measured() -> dict[str, Any]:
    from tilewise.kernels.native.microbench import bandwidth_gbs, measure_rates, peak_gflops
    from tilewise.kernels.target import detect

    target = detect()
    return {
        "target": target.canonical,
        "cores": target.cores,
        "features": ", ".join(f for f in SHOWN_FEATURES if f in target.features) or "none known",
        "vector_registers": f"{target.vector_registers} of {target.vector_bytes} bytes",
        "caches": f"L1 {target.l1_bytes >> 10} KiB, L2 {target.l2_bytes >> 10} KiB, "
                  f"L3 {target.l3_bytes >> 20} MiB",
        "peak_gflops": {d: round(peak_gflops(target, d), 1) for d in DTYPES},
        "instruction_gflops": measure_rates(target),
        "bandwidth_gbs": round(bandwidth_gbs(target), 1),
    }  # fmt: skip


COMMANDS = (
    Command("doctor", doctor, (SERVER,), extra=BASE, at_service=BASE,
            examples=("doctor", "doctor --server http://localhost:8000")),
)  # fmt: skip
