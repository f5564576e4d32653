"""Pinned threads that run the parts of a parallel kernel.

Face: `thread_pool`, `pin`, `usable_processors`.
"""
