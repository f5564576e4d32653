"""The table of `benchmarks.peers.main_job` as a picture.

    python -m benchmarks.peers.plot benchmarks/data/results/main_job.json docs/main_job.svg

One row per problem: OpenBLAS, the proven script, and the native kernel as shares of the
multiply-add peak that was measured in the same run.
"""

from benchmarks.pictures import picture
from tilewise.plots import shares_of_peak

if __name__ == "__main__":
    picture(__doc__, shares_of_peak)
