"""Which schedules a search may try: parameters, the schedule that a point means, what the caches
rule out.

Face: `Space`, `Point`, `Parameter`, `count_schedules`, `register_parameter`.
"""
