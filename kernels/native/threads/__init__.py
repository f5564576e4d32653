"""Pinned threads that run the parts of a parallel kernel."""
