"""The micro-kernel of results with few rows: rows of B stream by, and sums stay in the first cache.

Face: `kind.Sweep`.
"""
