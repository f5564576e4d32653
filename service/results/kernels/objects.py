"""The kernel of a stored result as a proven object, made once in a child process and kept.

What is kept is one document (`tilewise.kernels.native.objects.__main__`) for all forms of it: the
object, its bitcode and its header. It depends on the result and the toolchain alone, as a module
does.
"""

import base64
import hashlib
import json
from typing import Literal

from tilewise.kernels.problem import parse_problem, stem
from tilewise.service.results.child import answer_of

Form = Literal["module", "object", "bitcode", "c-header", "json"]
MODULE: Form = "module"
DOCUMENT: Form = "json"
MEDIA_TYPES: dict[Form, str] = {
    "module": "text/x-python",
    "object": "application/octet-stream",
    "bitcode": "application/octet-stream",
    "c-header": "text/x-c",
    "json": "application/json",
}
TEXT_TYPES = tuple(dict.fromkeys(kind for form, kind in MEDIA_TYPES.items() if form != DOCUMENT))
"""The media types of the forms that are files."""
_ENDINGS: dict[Form, str] = {"object": ".o", "bitcode": ".bc", "c-header": ".h"}


def object_tag(source: str, toolchain: str, form: Form) -> str:
    """A strong entity tag of a form of the object that the present toolchain makes of `source`."""
    return hashlib.sha256(f"{form}\n{toolchain}\n{source}".encode()).hexdigest()


def object_document(source: str) -> str:
    """The object of a result with all that is told of it, made and proven now, as JSON.

    Raises:
        ConflictError: this machine or this toolchain cannot make it, or it was not proven.
    """
    return answer_of("tilewise.kernels.native.objects", "the object", source)


def content_of(document: str, form: Form) -> bytes:
    """One form of an object."""
    if form == DOCUMENT:
        return document.encode()
    found = json.loads(document)
    if form == "c-header":
        return str(found["header"]).encode()
    return base64.b64decode(found[form])


def file_name(problem: str, form: Form) -> str | None:
    """Such as `matmul_m64_n48_k32_f32.o`; None for a form that is no file for a compiler."""
    ending = _ENDINGS.get(form)
    return None if ending is None else stem(parse_problem(problem)) + ending
