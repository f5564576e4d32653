"""A whole model: its problems tuned, compiled with and without our kernels, compared and timed.

Face: `examine`, `Settings`, `Report`, `report_text`.
"""
