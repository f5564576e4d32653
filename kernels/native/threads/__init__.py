"""Pinned threads that run the parts of a parallel kernel.

Face: `crew`, `pin`, `usable_processors`.
"""
