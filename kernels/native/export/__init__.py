"""A kernel as a Python module that stands alone.

Face: `export`; `python -m tilewise.kernels.native.export`.
"""
