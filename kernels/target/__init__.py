"""Targets: what the machine can do, declared, detected and measured."""

from tilewise.kernels.target.machine import described, detect, resolve
from tilewise.kernels.target.model import Target, TargetName, parse_target, target_kind

__all__ = ["Target", "TargetName", "described", "detect", "parse_target", "resolve", "target_kind"]
