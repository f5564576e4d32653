"""What outlives the loss of power, of the database, and of processes.

Face: `server.Server`; `python -m benchmarks.surviving.power_cut`.
"""
