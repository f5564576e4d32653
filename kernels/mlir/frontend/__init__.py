"""MLIR modules read as problems: what a model multiplies and convolves, where, and what is skipped.

Face: `read_module`, `read_graph`, `Graph`, `Imported`, `Occurrence`, `Arrangement`, `Skipped`.
"""
