"""What a web page may make a browser send here: nothing that does anything.

A service on somebody's loopback is reached by every page that their browser shows. A page of
another origin cannot read the answers, since no header here allows it, but it could send
requests; and one whose name is made to resolve to this machine (DNS rebinding) would be of the
same origin. The first is told by `Origin` and `Sec-Fetch-Site`, the second by `Host`.
"""

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

SAFE = ("GET", "HEAD")
LOOPBACK_NAME = "localhost"
ANY = "*"


def is_allowed_host(host: str, allowed: Collection[str]) -> bool:
    """Whether a `Host` is one of a service that listens on loopback, or is allowed by name.

    Args:
        host: the header, with a port or without.
        allowed: further names, without ports; `*` allows all.
    """
    name = host_name(host)
    return ANY in allowed or name in allowed or name == LOOPBACK_NAME or is_loopback(name)


def is_loopback(address: str) -> bool:
    """Whether a text is an address that only this machine reaches."""
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def host_name(host: str) -> str:
    """The name or address of a `Host`, lower case, without its port; empty for what is none."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_of_another_page(
    method: str, host: str, origin: str | None, site: str | None, mode: str | None
) -> bool:
    """Whether a page of another origin has made a browser send this.

    Args:
        method: of the request.
        host: its `Host`.
        origin: its `Origin`, which browsers send with all that may do something.
        site: its `Sec-Fetch-Site`: `same-origin`, `same-site`, `cross-site`, `none`.
        mode: its `Sec-Fetch-Mode`; somebody who follows a link navigates.
    """
    is_link = method in SAFE and mode == "navigate"
    if site in ("cross-site", "same-site") and not is_link:
        return True
    if origin is None or (method in SAFE and site is None):
        return False
    return origin.partition("://")[2].lower() != host.lower()
