"""The space of IREE's configurations: the sizes of its levels.

Face: `LevelSpace`.
"""
