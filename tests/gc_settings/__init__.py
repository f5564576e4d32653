"""Rare garbage collection, in tests and in the processes that they start."""
