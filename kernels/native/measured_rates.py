"""Measured rates of instructions, where a type has several."""

import contextlib
import subprocess
from dataclasses import replace

from tilewise.kernels.instructions import WITH_CHOICE, usable
from tilewise.kernels.system.children import child_command, child_environment
from tilewise.kernels.target.machine import AMX, kept_rates, this_processor
from tilewise.kernels.target.model import Target

LIMIT_S = 60.0


def with_rates(target: Target, dtype: str) -> Target:
    """Return a target with rates for a type, measured in a child if this machine has none yet.

    The target of another processor, or of other features, stays as it is, and so does one whose
    measurement fails; the table of cores decides then.
    """
    here = this_processor()
    differing = target.features ^ frozenset(here.features)
    is_here = target.cpu == here.name and all(one.startswith(AMX) for one in differing)
    if not is_here or not lacks_rates(dtype, target):
        return target
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            child_command("tilewise.kernels.native.microbench"),
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT_S,
            check=True,
        )
    return replace(target, rates=kept_rates())


def lacks_rates(dtype: str, target: Target) -> bool:
    """Return whether a target has several instructions for a type that were not measured yet."""
    if dtype not in WITH_CHOICE:
        return False
    forms = [usable(dtype, target, split) for split in (False, True)]
    return any(len(names) > 1 and not dict(target.rates).keys() >= set(names) for names in forms)
