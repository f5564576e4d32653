"""Child processes that pack a module and run it, on MLIR's own objects."""
