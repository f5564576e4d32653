"""The steps of a schedule: loops, copies, the register tile, and their JSON.

Face: `Step` and its classes, which the package above gives too, and `step_from_json`.
"""
