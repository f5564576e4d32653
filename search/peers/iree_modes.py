"""IREE's own two modes as peers of their own: a tuning spec is worth what it gains on both."""

from dataclasses import replace

from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.problem import Problem
from tilewise.search.peers import iree
from tilewise.search.peers.variant import PeerAbsentError, Variant

NAMES = {"default": "iree", "data tiling": "iree-dt"}
"""What the modes are called in results, by their names as ways of the peer `iree`."""


def modes(problem: Problem, operands: Operands, threads: int) -> list[Variant]:
    """Both modes, those that compile; none where IREE is absent."""
    try:
        ways = iree.variants(problem, operands, threads)
    except PeerAbsentError:
        return []
    return [replace(way, peer=NAMES[way.name]) for way in ways]
