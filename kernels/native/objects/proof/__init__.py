"""An object linked, run between guard pages, compared with the reference, and timed, in a child.

Face: `prove_object`, `require_proven`; `python -m tilewise.kernels.native.objects.proof.child`.
"""
