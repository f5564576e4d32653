"""Libraries for users of IREE, of what this machine's database has.

Face: `make_library`, `described`, `read_model`, `replaced_by`.
"""
