"""Where a command runs: on this machine, or at a service.

Face: `Backend`, `open_backend`, `local_backend`.
"""
