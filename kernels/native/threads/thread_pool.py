"""The thread pools of this process, by their number of members."""

from itertools import cycle, islice

import numpy as np

from tilewise.kernels.native.language.functions import publish, serve
from tilewise.kernels.native.language.shared_words import BARRIER_WORDS
from tilewise.kernels.native.threads.pinning import usable_processors
from tilewise.kernels.native.threads.pool import ThreadPool
from tilewise.kernels.oracle.operands import empty_aligned

_POOLS: dict[int, ThreadPool] = {}


def thread_pool(threads: int) -> ThreadPool:
    """Return the pool of this process with `threads` members; they may share processors."""
    if threads not in _POOLS:
        barrier = empty_aligned((BARRIER_WORDS,), np.int64)
        processors = list(islice(cycle(usable_processors()), threads))
        made = ThreadPool(processors, barrier, serve, publish)
        _POOLS.setdefault(threads, made)  # another thread may have been faster
    return _POOLS[threads]
