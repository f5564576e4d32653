"""What a module needs to be run besides its graph: what ops do, the values of weights.

Face: `outline`.
"""
