"""Schedules as transform scripts for real MLIR, and the proof that they work.

`payload` is what a script is applied to, `transform` what all flavors share, `cpu` and `air` are
flavors, `lowering` leads to machine code, and `proof` establishes whether a script works.
"""
