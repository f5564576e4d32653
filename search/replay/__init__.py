"""A search replayed on recorded trials, without timing anything.

Face: `Recording`, `RecordedSpace`, `replay`.
"""
