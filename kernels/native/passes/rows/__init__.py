"""Chains of elementwise ops and reductions as one pass over rows, vectorised, for any body.

Face: `RowProgram`, `row_pass`.
"""
