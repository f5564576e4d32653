"""`/v1/plans`: plans of whole models, their texts and their events.

Face: `asking`, `texts`, `events`.
"""
