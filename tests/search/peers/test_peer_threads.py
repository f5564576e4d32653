"""Peers on several threads: as many as asked for, and still right."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.search.peers.test_peers import make_case, require
from tilewise.kernels.mlir.iree.runtime import open_device
from tilewise.search.peers.screen import MAKERS, screened
from tilewise.search.peers.variant import PeerAbsentError

PRODUCT = "matmul:m=150,n=170,k=190,dtype=f32"
TASKS = Path("/proc/self/task")


@pytest.mark.full
@pytest.mark.parametrize("peer", ["openblas", "onednn", "iree"])
@pytest.mark.parametrize("text", [PRODUCT, "matmul:m=7,n=33,k=19,dtype=f32,bias,epilogue=relu"])
def test_results_on_two_threads_are_right(peer: str, text: str) -> None:
    require(peer)
    case = make_case(text)
    ways = screened(MAKERS[peer], replace(case.bench, threads=2))
    assert ways
    assert [case.why_wrong(way.variant) for way in ways] == [None] * len(ways)


@pytest.mark.parametrize("threads", [2, 1])
def test_torch_takes_the_threads_of_the_target(threads: int) -> None:
    require("onednn")
    import torch

    case = make_case(PRODUCT)
    assert MAKERS["onednn"](case.problem, case.operands, threads)
    assert torch.get_num_threads() == threads


def iree_workers() -> set[str]:
    names = {task.name: (task / "comm").read_text() for task in TASKS.iterdir()}
    return {number for number, name in names.items() if name.startswith("iree-worker")}


def new_workers(before: set[str], expected: int) -> int:
    """How many there are now; they name themselves, so a slow machine gets a while."""
    deadline = time.monotonic() + 20
    while len(iree_workers() - before) < expected and time.monotonic() < deadline:
        time.sleep(0.01)
    return len(iree_workers() - before)


@pytest.mark.skipif(not TASKS.exists(), reason="threads are listed by Linux's /proc only")
def test_iree_starts_as_many_workers_as_asked_whatever_ran_before() -> None:
    require("iree")
    for threads in (4, 3):  # which nothing else here asks for, so that none are there yet
        before = iree_workers()
        open_device(threads)
        assert new_workers(before, threads) == threads
    before = iree_workers()
    case = make_case(PRODUCT)
    made = MAKERS["iree"](case.problem, case.operands, 3)
    assert [case.why_wrong(way) for way in made] == [None] * len(made)
    assert iree_workers() == before


def test_more_threads_than_openblas_takes_are_an_absence() -> None:
    case = make_case(PRODUCT)
    with pytest.raises(PeerAbsentError, match="takes 64 threads, not 65"):
        MAKERS["openblas"](case.problem, case.operands, 65)
