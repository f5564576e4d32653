"""Passes over memory between kernels, and the chain of calls of a network.

A pass is a compiled function of the address of its i64 parameters. Its rows can be divided among
threads.
"""
