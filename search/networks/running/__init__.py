"""A planned network that runs: kernels, copies and passes in one chain over two arenas.

Face: `Network`.
"""
