"""What computes one tile of C, and what all of them share.

Face: `spec_of`, `KernelSpec`, the `emit_*` functions.
"""
