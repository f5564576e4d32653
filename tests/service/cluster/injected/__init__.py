"""Candidates that misbehave on purpose, for workers of a cluster.

Face: `faults`, `search.tune`; `python -m tests.service.cluster.injected`.
"""
