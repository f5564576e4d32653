"""Patterns cut out of a module: its own ops, so that whatever form they have is found again.

Face: `cut_apart`, `cut_module`, `Cut`.
"""
