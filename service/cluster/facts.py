"""The facts that a worker reports when it joins a cluster."""

import json
from dataclasses import dataclass
from typing import Any

from tilewise.kernels.system.toolchain import identity
from tilewise.kernels.system.typed_json import from_json, to_json
from tilewise.service.errors import WorkerError
from tilewise.service.host.machine import MachineInfo, examine
from tilewise.service.host.process_identity import me
from tilewise.service.jobs.registry import MachineSpeed, WorkerEntry
from tilewise.service.workers.presence import PeakMeasurement

KEY = "tilewise"
"""Under which a worker's identity has its facts."""

TIMING = "timing"


@dataclass(frozen=True)
class Facts:
    """One worker: its process, its machine, and what it can time.

    `measured` is what one thread reaches, if known.
    """

    owner: str
    machine: MachineInfo
    targets: tuple[str, ...]
    toolchain: str
    measured: MachineSpeed | None = None

    @property
    def resources(self) -> dict[str, float]:
        """As Dask counts them: one job at once, whatever its target."""
        return {TIMING: 1.0, **dict.fromkeys(self.targets, 1.0)}

    @property
    def entry(self) -> WorkerEntry:
        """As the list of live workers has it."""
        return WorkerEntry(self.owner, self.machine, self.targets, self.toolchain, capacity=1)

    def text(self, _worker: object = None) -> str:
        """Return the facts as text for Dask, so that no process unpickles them."""
        return json.dumps(to_json(self))

    @classmethod
    def read(cls, text: object) -> "Facts":
        """Return the facts of a text; raise ValueError if it has none."""
        if not isinstance(text, str):
            raise ValueError("it is not a worker of Tilewise")
        return from_json(cls, json.loads(text))


def facts_of_this_machine(*, measures_peaks: bool = True) -> Facts:
    """Examine and measure this machine in children; raise MachineError for an unknown processor."""
    machine = examine()
    measured = _measured() if measures_peaks else None
    return Facts(me(), machine, machine.targets, identity(), measured)


def _measured() -> MachineSpeed | None:
    measurement = PeakMeasurement()
    try:
        return measurement.wait()
    except WorkerError:
        return None


def facts_in(workers: dict[str, Any]) -> dict[str, Facts]:
    """Return the facts of each worker of a scheduler, by address."""
    found = {}
    for address, info in workers.items():
        try:
            found[address] = Facts.read(info.get(KEY))
        except ValueError:
            continue
    return found
