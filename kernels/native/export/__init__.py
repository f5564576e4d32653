"""A kernel as a Python module that stands alone.

Public names: `module.export`; `python -m tilewise.kernels.native.export`.
"""
