"""Passes over memory between kernels, and the chain of calls that a network is.

A pass is a compiled function of the address of its parameters, as a driver is. Its parameters are
i64s; a part of its rows can be given to each thread.

Face: `pass_of`, `chain`, `Pass`.
"""
