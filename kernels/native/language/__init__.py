"""The language of macro-kernels, Python functions of i64s, and its compiler to LLVM IR."""
