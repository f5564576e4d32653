"""Other libraries on the same buffers; importing this loads none of them."""

from importlib.util import find_spec

from tilewise.kernels.oracle.operands import Operands
from tilewise.kernels.problem import Problem
from tilewise.search.peers import openblas
from tilewise.search.peers.variant import PeerAbsentError, Variant
from tilewise.search.records import OWN

PEERS = ("openblas", "onednn", "iree", "onnxruntime", "iree+tilewise")
PACKAGES = {
    "openblas": ("numpy",),
    "onednn": ("torch",),
    "onnxruntime": ("onnxruntime", "onnx"),
    "iree": ("iree.compiler", "iree.runtime"),
    "iree+tilewise": ("iree.compiler", "iree.runtime"),
}


def missing_packages(name: str) -> list[str]:
    """Return what has to be installed before peer `name` can run."""
    return [package for package in PACKAGES[name] if not _is_present(package)]


def installed_peers() -> tuple[str, ...]:
    """Return the other libraries whose packages are installed."""
    return tuple(name for name in PEERS if name not in OWN and not missing_packages(name))


def available_peers(problem: Problem, operands: Operands, threads: int) -> list[Variant]:
    """Return the ways of OpenBLAS for a problem without extra passes.

    Bias, epilogue and accumulation would cost OpenBLAS passes that the problem does not need;
    `tilewise bench` compares those with every peer.
    """
    adds = problem.has_bias or problem.add or problem.epilogue != "none" or problem.accumulates
    if adds or problem.spatial_axes:
        return []
    try:
        return openblas.variants(problem, operands, threads)
    except PeerAbsentError:
        return []


def _is_present(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
