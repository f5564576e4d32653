"""What computes one tile of C, and what all of them share.

Face: `kind_of`, `MicroKernel`, `KernelSpec`; `abi` is what driver and kernels agree on. A new kind
is a file that implements `MicroKernel`, and its line in `kinds.KINDS`; or a class of any other
module that registers itself by `kinds.register_kind`.
"""
