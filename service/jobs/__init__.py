"""Jobs of all kinds: the queue, who runs them, how they end.

Public: `queue.create_or_join`, `model_jobs.ask_to_plan`, `claims.claim`, `Heartbeat`,
`outcome.store`.
"""
