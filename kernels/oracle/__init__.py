"""Random operands, the exact result, and how far off is still right.

Face: `make_operands`, `reference`, `compare`.
"""
