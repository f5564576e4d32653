"""Scripts of ops as a module has them: put in order inside the script, proven on the op itself.

Face: `prove_lone`, `with_op`, `schedulable`.
"""
