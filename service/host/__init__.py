"""This machine: what it is, and which of its processes live.

Face: `MachineInfo`, `examine`, `me`.
"""
