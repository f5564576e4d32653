"""Workers of Tilewise on the nodes of a Slurm cluster, by dask-jobqueue.

    pip install dask-jobqueue
    python farm.py --queue compute --workers 8

Each worker has a node to itself. The scheduler runs in this process, so run it where nodes reach
it and where it may stay, and start the driver with its address.
"""

import argparse
import signal
import sys

from dask_jobqueue import SLURMCluster

from tilewise.service.cluster.scheduler import configure


def make_cluster(queue: str, port: int, cores: int, memory: str, walltime: str) -> SLURMCluster:
    """A scheduler in this process; workers come with `scale`.

    Args:
        queue: partition of Slurm.
        port: of the scheduler.
        cores: of a node, all of which a worker has.
        memory: of a node, such as `64GB`.
        walltime: of a worker, such as `08:00:00`; jobs go on elsewhere after it.
    """
    configure()
    return SLURMCluster(
        queue=queue,
        cores=cores,
        job_cpu=cores,
        processes=1,
        memory=memory,
        walltime=walltime,
        nanny=False,
        worker_extra_args=["--nthreads", "1", "--memory-limit", "0",
                           "--preload", "tilewise.service.cluster.preload"],
        job_extra_directives=["--exclusive"],
        scheduler_options={"port": port, "dashboard": False},
    )  # fmt: skip


def main() -> None:
    """Keep so many workers until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--port", type=int, default=8786)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--memory", default="16GB")
    parser.add_argument("--walltime", default="08:00:00")
    options = parser.parse_args()
    made = (options.queue, options.port, options.cores, options.memory, options.walltime)
    with make_cluster(*made) as cluster:
        # `adapt` has a worker started again whose walltime is over.
        cluster.adapt(minimum=options.workers, maximum=options.workers)
        sys.stdout.write(f"tilewise driver --scheduler {cluster.scheduler_address} --service URL\n")
        sys.stdout.flush()
        signal.sigwait((signal.SIGINT, signal.SIGTERM))


if __name__ == "__main__":
    main()
