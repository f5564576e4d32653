"""Whether a script works: applied, run, compared and timed in a killable child.

Face: `prove`, `prove_script`, `verify`, `Proof`.
"""
