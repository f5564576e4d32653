"""The space of schedules that IREE lowers itself: the sizes of its levels.

Face: `LevelSpace`.
"""
