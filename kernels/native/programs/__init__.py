"""A program of kernels and passes as standalone machine code."""
