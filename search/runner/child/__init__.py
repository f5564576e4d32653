"""What runs inside the child of a runner.

Face: `python -m search.runner.child`.
"""
