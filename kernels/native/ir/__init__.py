"""LLVM IR written as text: instructions, vectors, loops, shuffles, dot products."""
