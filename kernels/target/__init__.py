"""Targets: what the machine can do, declared, detected and measured."""

from kernels.target.detect import described, detect, resolve
from kernels.target.model import Target, canonical_target, parse_target, target_kind

__all__ = [
    "Target",
    "canonical_target",
    "described",
    "detect",
    "parse_target",
    "resolve",
    "target_kind",
]
