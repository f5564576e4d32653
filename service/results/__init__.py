"""What is stored of a problem: schedules, scripts, kernels, trials."""
