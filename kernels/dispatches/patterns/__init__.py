"""The ops that mean a problem, in each spelling that compilers give them when IREE looks.

Face: `SPELLINGS`, `Spelling`, `Pattern`, `patterns`.
"""
