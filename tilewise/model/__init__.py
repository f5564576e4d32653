"""A whole model in IREE and as a native network: compiled, compared, timed, and as text.

Public: `Model`, `examine`, `Report`, `report_text`, `ran`, `plan_text`, `make_library`.
"""
