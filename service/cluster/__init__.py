"""Jobs on many machines: what a Dask cluster moves is one task for each job, and nothing else.

Face: `Driver`, `DriverProcess`, `run_scheduler`, `run_worker`, `drive`.
"""
