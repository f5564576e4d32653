"""A module as a file holds it, without the weights: their values tell nothing of its problems.

A model's text is weights for the most part, in hexadecimal. Cut out, they need not be parsed, and
an attribute whose resource is missing is as good as one that has it.
"""

import re

BYTECODE = b"ML\xefR"
MOST_KEPT = 4096  # hexadecimal digits; shapes and scalars are shorter, and passes read them
_LONG = rb'"0x[0-9A-Fa-f]{%d,}"' % MOST_KEPT
_SECTION = re.compile(rb"^\{-#", re.MULTILINE)
_NAME = rb'(?:"[^"\n]*"|[A-Za-z0-9_.$-]+)'
_FOLLOWED = re.compile(_NAME + rb"\s*:\s*" + _LONG + rb"\s*,")
_LAST = re.compile(rb",?\s*" + _NAME + rb"\s*:\s*" + _LONG)
_INLINE = re.compile(rb"dense<" + _LONG + rb">")


def is_bytecode(module: bytes) -> bool:
    """Whether a module is in MLIR's binary form."""
    return module.startswith(BYTECODE)


def without_weights(module: bytes) -> bytes:
    """A module's text with long values cut out; bytecode as it is."""
    if is_bytecode(module):
        return module
    sections = [found.start() for found in _SECTION.finditer(module)]
    if sections:
        text, values = module[: sections[-1]], module[sections[-1] :]
        module = text + _LAST.sub(b"", _FOLLOWED.sub(b"", values))
    return _INLINE.sub(b"dense_resource<__elided__>", module)
