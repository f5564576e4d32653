"""An object linked, run between guard pages, compared with the reference, and timed, in a child.

Public names: `prove.prove_object`, `prove.require_proven`.
"""
