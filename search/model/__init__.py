"""The analytical model of a schedule's time, and the schedules that it likes best.

Face: `AnalyticalModel`, `prior_points`.
"""
