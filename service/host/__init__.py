"""This machine, and which of its processes live."""
