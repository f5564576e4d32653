"""A whole model: its problems tuned, compiled with and without our kernels, compared and timed.

Face: `Model`, `examine`, `Report`, `report_text`.
"""
