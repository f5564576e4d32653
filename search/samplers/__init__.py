"""Optuna samplers over a space: ours, Optuna's and any other."""
