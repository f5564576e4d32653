"""What `tilewise plan` makes of a model: times from a store, and a table.

Face: `plan_text`.
"""
