"""Who may ask for what: tokens, limits, and what a browser may be made to do.

Face: `Caller`, `caller_of`.
"""
