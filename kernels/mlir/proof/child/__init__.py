"""What runs inside the child.

Face: `python -m` of `prove` and `verify`.
"""
