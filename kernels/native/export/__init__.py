"""A kernel as a Python module that stands alone.

Face: `export`; `python -m kernels.native.export`.
"""
