"""`/v1/runs`, where a job is spread: what its leader and its helpers say.

Face: `exchange.router` for the leader, `helping.router` for helpers.
"""
