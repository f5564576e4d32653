"""Tuned kernels as dispatches of IREE's: one file that a user's `iree-compile` takes by one flag.

Face: `Entry`, `library_text`, `compiled_with`, `SPELLINGS`.
"""
