"""This machine: what it is, what fits in it, which of its processes live.

Face: `MachineInfo`, `examine`, `check_memory`.
"""
