"""Targets: what the machine can do, declared, detected and measured."""

from kernels.target.detect import detect, resolve
from kernels.target.model import Target, parse_target

__all__ = ["Target", "detect", "parse_target", "resolve"]
