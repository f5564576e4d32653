"""The best few timed again, and what is quoted of them.

Face: `Finals`, `Rounds`, `rounds_of`.
"""
