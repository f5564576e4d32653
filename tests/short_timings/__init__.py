"""Short final benchmarks, proofs and measurements of memory, for tests without certain results.

`tests.search` asks that of finals. They time what is small for three seconds in each of two
processes, and longer where others preempt them, as beside other tests. The bandwidth
of the memory takes a buffer of four times the last cache, which may be a gigabyte: each service
with a worker measures it as soon as nothing runs, beside other tests. What is timed so briefly
is never noisy, or all who ask for it again would wait.
"""

import os
from pathlib import Path

FINAL_S = 0.3
SHORTER = {
    "tilewise.search.final_benchmark.benchmark": {"FINAL_S": FINAL_S, "PROCESSES": 1},
    "tilewise.kernels.mlir.proof.prove": {"REPEAT_SECONDS": 0.02},
    "tilewise.kernels.native.objects.proof.prove": {"REPEAT_SECONDS": 0.02},
    "tilewise.kernels.native.microbench": {"BUFFER_BYTES": 8 << 20, "LEAST_BUFFER_PER_CACHE": 0},
}
CHANGES = SHORTER | {"tilewise.search.final_benchmark.quality": {"WIDEST": float("inf")}}
"""What becomes of the names of modules in each Python that starts with `python_path`."""


def python_path(*folders: Path) -> str:
    """A value of PYTHONPATH with which each Python, and what it starts, has short timings."""
    inherited = os.environ.get("PYTHONPATH")
    here = Path(__file__).parent
    return os.pathsep.join([*map(str, (*folders, here)), *([inherited] if inherited else [])])
