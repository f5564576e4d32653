"""Passes over rows as dispatches: what stands between a model's contractions.

Face: `RowPass`, `CompiledPass`, `compiled_pass`.
"""
