"""A problem as the linalg function that scripts are applied to.

Face: `payload`, `with_payload`, `form`.
"""
