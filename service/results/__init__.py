"""Stored results: schedules, scripts, kernels, trials."""
