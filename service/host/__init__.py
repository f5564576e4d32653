"""This machine and its live processes."""
