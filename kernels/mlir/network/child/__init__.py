"""What the processes do that pack a module and run it, on MLIR's own objects."""
