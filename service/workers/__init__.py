"""The processes that run jobs.

Face: `Pool`, `run_job`; `python -m tilewise.service.workers`.
"""
