"""Scripts and kernels of this machine's database, as a service returns them."""

import hashlib
from collections.abc import Sequence
from typing import cast

from tilewise.backends.base import Known
from tilewise.client.api import read_found
from tilewise.errors import BadInputError, MissingError
from tilewise.kernels.problem import parse_problem
from tilewise.kernels.system.toolchain import identity
from tilewise.schema.results import Found, Text
from tilewise.service.api import files
from tilewise.service.api.requests import FILE_KINDS, FileKind
from tilewise.service.db.session import Sessions, reading
from tilewise.service.errors import NotFoundError
from tilewise.service.results import scripts
from tilewise.service.results.kernels import kernel_source, kernel_tag
from tilewise.service.results.stored import Lookup


def look_up(
    sessions: Sessions, work: Lookup, problems: Sequence[str], kinds: Sequence[str], known: Known
) -> list[Found]:
    """Implement `Backend.look_up`."""
    wanted = [parse_problem(problem) for problem in problems]
    for kind in kinds:
        if kind not in FILE_KINDS:
            raise BadInputError(f"file {kind!r} is not one of {', '.join(FILE_KINDS)}")
    given = cast("Sequence[FileKind]", kinds)
    with reading(sessions) as session:
        tags = cast("files.Known", known)
        found = files.look_up(session, wanted, work, given, tags)
    return [read_found(one) for one in found["schedules"]]


def nothing(problems: Sequence[str], kinds: Sequence[str]) -> list[Found]:
    """Return the answers of a look-up in an empty store."""
    wanted = [parse_problem(problem) for problem in problems]
    empty = {"schedule": None, "files": dict.fromkeys(kinds)}
    return [read_found({"problem": one.canonical, "key": one.key, **empty}) for one in wanted]


def text(sessions: Sessions, found: Found, kind: str) -> Text:
    """Return a script or kernel of a look-up; raise MissingError if it is gone."""
    if found.result is None:
        raise MissingError(f"no {kind} of {found.problem} is stored")
    target, toolchain = found.result.target, found.result.toolchain
    lookup = Lookup(target, identity())
    match = found.result.match.kind if found.result.match else "exact"
    if kind == files.KERNEL:
        from tilewise.kernels.native.export.module import export_result

        tag = kernel_tag(kernel_source(found.result.document, target), identity())
        return Text(export_result(found.result.document), tag, match, target, toolchain)
    if kind == scripts.FLAVOR:
        try:
            made = scripts.make(sessions, found.key, lookup)
        except NotFoundError as error:
            raise MissingError(str(error)) from error
        return Text(made.text, made.sha256, match, target, toolchain)
    with reading(sessions) as session:
        script = scripts.find_script(session, found.key, lookup, kind)
    if script is None:
        raise MissingError(f"no proven {kind} script of {found.problem} is stored")
    tag = hashlib.sha256(script.text.encode()).hexdigest()
    return Text(script.text, tag, match, target, toolchain)
