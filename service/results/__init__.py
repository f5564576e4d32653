"""What is stored of a problem: schedules, scripts, kernels, trials.

Public: `find_schedule`, `served_script`, `find_trials`, `kernel_module`.
"""
