"""Targets: what the machine can do, declared, detected and measured."""

from kernels.target.detect import detect, resolve
from kernels.target.model import Target, canonical_target, parse_target, target_kind

__all__ = ["Target", "canonical_target", "detect", "parse_target", "resolve", "target_kind"]
