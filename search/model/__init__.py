"""How long a schedule should take: an analytical model, its weights, and the schedules that it
likes best.

Face: `log_time`, `prior_points`, the weights (`Costs` today).
"""
