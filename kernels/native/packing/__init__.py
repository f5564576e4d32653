"""Copies to panels, in whole vectors.

Face: the `emit_*` functions.
"""
