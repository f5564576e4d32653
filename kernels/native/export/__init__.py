"""A kernel as a standalone Python module."""
