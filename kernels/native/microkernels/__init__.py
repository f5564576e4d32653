"""Micro-kernels: what computes one tile of C, one form of them in each file.

Public names: `kinds.kind_of`, `kinds.register_kind`, `microkernel.MicroKernel`; `abi` is what
macro-kernels and kernels agree on. A form is a file that implements `MicroKernel` and its line in
`kinds.KINDS`, or a class of any other module that registers itself by `kinds.register_kind`.
"""
