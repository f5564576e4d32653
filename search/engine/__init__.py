"""The loop of a search, which is an Optuna study: propose, try, keep, and end with the finals.

Face: `tune`, `SearchStudy`, `rebuilt`.
"""
