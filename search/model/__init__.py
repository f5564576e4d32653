"""How long a schedule should take: an analytical model, its weights, and the schedules that it
likes best.

Face: `Model`, `prior_points`, `Weights`.
"""
