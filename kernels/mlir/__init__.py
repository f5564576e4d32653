"""Schedules as transform scripts for real MLIR, and their proofs; modules read as problems."""
