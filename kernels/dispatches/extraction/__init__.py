"""Patterns of a module's own ops, extracted in a child process.

Public: `cut_module`, `Cut`.
"""
