"""Methods beside the direct one: where they are offered, and what their points mean.

Face: `step_of`, `method_parameters`.
"""
