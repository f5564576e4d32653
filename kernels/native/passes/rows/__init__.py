"""Chains of elementwise ops and reductions as one vectorised pass over rows."""
