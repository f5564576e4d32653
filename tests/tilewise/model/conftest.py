"""Modules are read here, without children."""

from tests.kernels.mlir import in_process

read_here = in_process.read_here
