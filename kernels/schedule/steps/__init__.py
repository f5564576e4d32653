"""The steps of a schedule: loops, copies, the register tile, and their JSON.

Face: every step, and `step_from_json`; `kernels.schedule` gives them too.
"""
