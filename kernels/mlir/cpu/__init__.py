"""Flavor cpu: the loop nest of a schedule as transform operations.

Face: `emit_script`, `Script`.
"""
