"""MLIR modules as problems: what a model multiplies and convolves, where, and what is skipped."""
