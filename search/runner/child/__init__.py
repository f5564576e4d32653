"""What runs inside the child of a runner.

Face: `python -m tilewise.search.runner.child`.
"""
