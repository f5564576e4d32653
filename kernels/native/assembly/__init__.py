"""The inner loop as machine code, and the bound that its instructions imply.

Face: `inner_loop`, `render`.
"""
