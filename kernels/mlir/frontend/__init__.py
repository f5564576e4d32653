"""MLIR modules read as problems: what a model multiplies and convolves, where, and what is skipped.

Face: `read_module`, `read_graph`, `read_program`, `Graph`, `Program`, `Imported`, `Occurrence`,
`Arrangement`, `Skipped`.
"""
