"""Methods beside the direct one: where they are offered, and what their points mean.

Face: `step_of`, `filtering_parameters`, `filtered_schedule`.
"""
