"""The graph of a module on linalg: which op reads what which other op makes.

Face: `graph_of`, `traced`.
"""
