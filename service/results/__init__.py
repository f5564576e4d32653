"""What is stored of a problem: schedules, scripts, kernels, trials.

Face: `find_*`, `add_script`.
"""
