"""Searches that were asked for: the queue, who runs them, how they end.

Face: `create_or_join`, `claim`, `Heartbeat`, `store`.
"""
