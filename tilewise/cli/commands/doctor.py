"""What this machine is: processor, caches, measured limits, toolchain, and what is missing."""

import argparse
from typing import Any

from kernels.problem import DTYPES
from tilewise.cli.command import Command
from tilewise.cli.output import print_mapping
from tilewise.requirements import is_present, require

EXTRAS = {"numba": "kernels", "iree.compiler": "kernels", "optuna": "search", "fastapi": "service"}
OPTIONAL = {"cmaes": "sampler cmaes", "torch": "sampler gp"}
SHOWN_FEATURES = ("avx512f", "avx512vnni", "avx512bf16", "avx2", "fma", "neon")


def doctor(options: argparse.Namespace) -> None:
    """Say what this machine is and what is missing."""
    print_mapping(examine(), as_json=options.json)


def examine() -> dict[str, Any]:
    """Facts by name; speeds are measured now."""
    missing = [f"{name}: install tilewise[{extra}]" for name, extra in EXTRAS.items()
               if not is_present(name)]  # fmt: skip
    require("numba", "doctor", "kernels")
    from kernels.native.microbench import bandwidth_gbs, peak_gflops
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
        "bandwidth_gbs": round(bandwidth_gbs(target), 1),
        "toolchain": identity(),
        "missing": missing,
        "optional": [f"{name} for {use}" for name, use in OPTIONAL.items() if not is_present(name)],
    }  # fmt: skip


COMMANDS = (Command("doctor", doctor),)
