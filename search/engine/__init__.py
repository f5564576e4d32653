"""The loop: propose, try, keep, and end with the finals.

Face: `tune`.
"""
