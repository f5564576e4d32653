"""A module as a file holds it, without the weights: their values tell nothing of its problems.

A model's text is weights for the most part, in hexadecimal. Cut out, they need not be parsed, and
an attribute whose resource is missing is as good as one that has it. A file is read in one pass,
whatever it holds.
"""

import re

BYTECODE = b"ML\xefR"
_LONG = re.compile(rb'"0x[0-9A-Fa-f]{4096,}"')  # passes read shapes and scalars, which are shorter
_CUT = b'"0x cut"'
_INLINE = b"dense<" + _CUT + b">"
_ELIDED = b"dense_resource<__elided__>"
_SECTION = re.compile(rb"^\{-#", re.MULTILINE)
_NAMED = re.compile(rb'(?:"[^"\n]*"|[A-Za-z0-9_.$-]+)\s*:\s*$')
_LONGEST_NAME = 600
_COMMA = re.compile(rb"\s*,")
_COMMA_BEFORE = re.compile(rb",\s*$")


def is_onnx(module: bytes) -> bool:
    """Whether a file is an ONNX model: a protocol buffer whose first field is the version."""
    return module.startswith(b"\x08")


def is_bytecode(module: bytes) -> bool:
    """Whether a module is in MLIR's binary form."""
    return module.startswith(BYTECODE)


def without_weights(module: bytes) -> bytes:
    """A module's text with long values cut out; bytecode as it is."""
    if is_bytecode(module):
        return module
    module = _LONG.sub(_CUT, module).replace(_INLINE, _ELIDED)
    sections = [found.start() for found in _SECTION.finditer(module)]
    if not sections:
        return module
    return module[: sections[-1]] + _without_entries(module[sections[-1] :])


def _without_entries(section: bytes) -> bytes:
    """The resources without the entries whose values are cut, each with one comma beside it."""
    first, *others = section.split(_CUT)
    kept = bytearray(first)
    for following in others:
        tail = _NAMED.sub(b"", bytes(kept[-_LONGEST_NAME:]))
        comma = _COMMA.match(following)
        if comma is None:
            tail = _COMMA_BEFORE.sub(b"", tail)
        kept[-_LONGEST_NAME:] = tail
        kept += following if comma is None else following[comma.end() :]
    return bytes(kept)
