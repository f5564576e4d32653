"""What is stored of a problem: schedules, scripts, kernels, trials.

Face: `find_schedule`, `find_script`, `find_trials`, `kernel_module`, and `make` of air scripts.
"""
