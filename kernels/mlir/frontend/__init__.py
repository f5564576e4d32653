"""The matmuls and convolutions of MLIR modules, their places, and what is skipped."""
