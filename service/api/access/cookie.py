"""The cookie that carries a browser's token to the pages and calls of the dashboard."""

from http.cookies import CookieError, SimpleCookie

TOKEN_COOKIE = "tilewise_token"


def token_in(cookie: str) -> str | None:
    """The token of a `Cookie` header; None where it has none."""
    try:
        found = SimpleCookie(cookie).get(TOKEN_COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value
