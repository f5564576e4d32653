"""Libraries for IREE whose every kernel was found, run, compared and timed inside IREE.

Face: `judged`, `proven_library`.
"""
