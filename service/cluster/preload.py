"""Turn a plain `dask worker` into a Tilewise worker by `--preload`.

For users who start workers by Dask's own means, such as dask-jobqueue. The worker has to have one
thread and no nanny.
"""

from typing import TYPE_CHECKING

from tilewise.service.cluster.facts import KEY, facts_of_this_machine
from tilewise.service.cluster.scheduler import configure
from tilewise.service.errors import WorkerError

if TYPE_CHECKING:
    from distributed import Worker


def dask_setup(worker: "Worker") -> None:
    """Set up a Dask worker before it joins; raise WorkerError if it would run jobs in parallel."""
    if worker.state.nthreads != 1:
        raise WorkerError(
            f"a worker that times has one thread, not {worker.state.nthreads}; give --nthreads 1"
        )
    configure()
    facts = facts_of_this_machine()
    worker.startup_information[KEY] = facts.text
    worker.state.total_resources.update(facts.resources)
    worker.state.available_resources.update(facts.resources)
