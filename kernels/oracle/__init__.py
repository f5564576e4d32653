"""Random operands, the exact result, and its tolerance: `make_operands`, `reference`, `compare`."""
