"""Lists that a service gives in pages, and the lists inside of its answers."""

from dataclasses import dataclass
from typing import Any

from tilewise.client.exchange import Ask, Exchange, ask, is_path, json_of
from tilewise.errors import TilewiseError

Json = dict[str, Any]
PAGE = 500  # items that are asked for at once


@dataclass(frozen=True)
class PagePath:
    """Where a page is.

    Attributes:
        name: of the list in the answer.
        params: the filters; the path of a page after the first has them in it.
    """

    name: str
    path: str
    params: Json


@dataclass(frozen=True)
class Page:
    """Some items of a list, and where the next ones are, if there are more."""

    items: list[Json]
    following: PagePath | None


def first_page(name: str, path: str, **filters: str | None) -> PagePath:
    """Where a list begins."""
    given = {key: value for key, value in filters.items() if value is not None}
    return PagePath(name, path, given | {"limit": PAGE})


def read_page(at: PagePath, url: str) -> Exchange[Page]:
    """One page of a list.

    Raises:
        TilewiseError: the answer has no such list, or leads away from the service, which would
            show the token to somebody else.
    """
    answer = json_of((yield from ask(Ask("GET", at.path, at.params), url)), url)
    items = objects_of(answer, at.name)
    following = answer.get("next", "")
    if following is None:
        return Page(items, None)
    if not isinstance(following, str) or not is_path(following):
        raise _of_another_form("next", following, "a path or null")
    return Page(items, PagePath(at.name, following, {}))


def objects_of(answer: Json, name: str) -> list[Json]:
    """The objects of a list in an answer.

    Raises:
        TilewiseError: it is none.
    """
    found = answer.get(name)
    if not isinstance(found, list):
        raise _of_another_form(name, found, "a list")
    for index, one in enumerate(found):
        if not isinstance(one, dict):
            raise _of_another_form(f"{name}[{index}]", one, "an object")
    return found


def _of_another_form(name: str, found: object, wanted: str) -> TilewiseError:
    return TilewiseError(
        f"the service's answer is of another form: {name} is {found!r:.80}, not {wanted}"
    )
