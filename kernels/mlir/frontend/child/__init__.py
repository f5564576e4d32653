"""What reads a module in a process of its own: MLIR is loaded here alone."""
