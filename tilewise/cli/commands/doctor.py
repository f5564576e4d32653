"""What this machine is: processor, caches, measured limits, toolchain, and what is missing."""

import argparse
from typing import TYPE_CHECKING, Any

from kernels.problem import DTYPES
from tilewise.backends.choose import named_server
from tilewise.cli.command import Command
from tilewise.cli.options import add_server
from tilewise.cli.output import print_mapping
from tilewise.requirements import is_present, require

if TYPE_CHECKING:
    from tilewise.client import Worker

EXTRAS = {"numba": "kernels", "iree.compiler": "kernels", "optuna": "search", "fastapi": "service"}
OPTIONAL = {"cmaes": "sampler cmaes", "torch": "sampler gp"}
SHOWN_FEATURES = ("avx512f", "avx512vnni", "avx512bf16", "avx2", "fma", "neon")


def doctor(options: argparse.Namespace) -> None:
    """Say what this machine, or a service and its machines, is and what is missing."""
    server = named_server(options.server)
    print_mapping(examine_service(server) if server else examine(), as_json=options.json)


def examine_service(url: str) -> dict[str, Any]:
    """Whether a service is fit to work, and what the machines of its workers are."""
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


def examine() -> dict[str, Any]:
    """Facts by name; speeds are measured now."""
    missing = [f"{name}: install tilewise[{extra}]" for name, extra in EXTRAS.items()
               if not is_present(name)]  # fmt: skip
    require("numba", "doctor", "kernels")
    from kernels.native.microbench import bandwidth_gbs, measure_rates, peak_gflops
    from kernels.system.toolchain import identity
    from kernels.target import detect

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
        "toolchain": identity(),
        "missing": missing,
        "optional": [f"{name} for {use}" for name, use in OPTIONAL.items() if not is_present(name)],
    }  # fmt: skip


COMMANDS = (Command("doctor", doctor, add_server),)
