"""Which schedules a search may try: parameters, the schedule that a point means, what the caches
rule out.

Face: `Space`, `Point`, `Parameter`, `register_parameter`.
"""
