"""MLIR modules read as problems: what a model multiplies and convolves, where, and what is skipped.

Face: `read_module`, `Imported`, `Occurrence`, `Arrangement`, `Skipped`.
"""
