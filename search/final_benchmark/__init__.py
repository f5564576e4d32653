"""The best few timed again, and what is quoted of them.

Face: `FinalBenchmark`, `Rounds`, `rounds_of`.
"""
