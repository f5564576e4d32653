"""The language that drivers are written in, Python functions of i64s, and its compiler to LLVM IR.

Face: `emit_driver`, `emit_function`, `language`.
"""
