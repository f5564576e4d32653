"""A program of kernels and passes as machine code that needs nothing of ours.

Face: `Program`, `compiled_program`, `shared_library`.
"""
