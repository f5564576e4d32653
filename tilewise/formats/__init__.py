"""Trials in the formats of other tools.

Face: `t4`, `optuna_study`, `trials`.
"""
