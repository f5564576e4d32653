"""A problem as the linalg function that scripts are applied to.

Face: `payload`, `form`.
"""
