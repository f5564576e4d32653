"""Plans that the workers of a cluster make: given by a driver, which keeps them in the database.

Face: `PlanGiving`, `make_plan`.
"""
