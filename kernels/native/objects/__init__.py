"""A schedule's kernel as machine code that links anywhere: an object, bitcode and a C header.

Face: `make_object`, `prove_object`; `python -m tilewise.kernels.native.objects`.
"""
