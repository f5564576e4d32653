"""Flavor cpu: the steps of a schedule as transform operations.

Face: `emit_script`, `Script`.
"""
