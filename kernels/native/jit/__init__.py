"""Functions as object code: compiled once, kept on disk, loaded into a process.

Face: `compile_kernels`, `load_driver`, `kernel_text`.
"""
