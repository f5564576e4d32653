"""LLVM IR written as text: instructions, vectors, loops, dot products.

Face: `Builder`, `Vectors`, `Loop`, `branch`.
"""
