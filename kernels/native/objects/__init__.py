"""A schedule's kernel as machine code that links anywhere: an object, bitcode and a C header.

Public names: `make.make_object`, `proof.prove.prove_object`, `object_files.archive`,
`document.proven_document`, `document.python_module`.
"""
