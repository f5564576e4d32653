"""The analytical model of a schedule's time, its weights, and the schedules that it
likes best.

Face: `Model`, `prior_points`, `Weights`.
"""
