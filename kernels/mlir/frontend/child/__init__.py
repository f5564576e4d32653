"""The child process that reads modules, the only one that loads MLIR."""
