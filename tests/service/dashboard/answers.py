"""Checks of pages."""

import html
import re

from tilewise.service.dashboard.rendering import POLICY

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
OWN = {**BROWSER, "Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}
HOSTILE = "<script>alert('1')</script>\"'&<img src=x onerror=alert(2)>"


def assert_page(answer, status, *said):
    """Check that an answer is a page with these texts, and return its text."""
    assert answer.status_code == status, answer.url
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-frame-options"] == "DENY" and "frame-ancestors 'none'" in POLICY
    assert answer.text.count("<h1>") == 1 and "</html>" in answer.text
    for text in said:
        assert text in answer.text, answer.url
    return answer.text


def assert_self_contained(page):
    """Everything is of this service, and nothing is inline."""
    for source in re.findall(r'(?:src|href|action)="([^"]+)"', page):
        assert source.startswith(("/", "#")) and not source.startswith("//"), source
    assert not re.search(r"<script(?![^>]*\bsrc=)|\bon\w+=|\bstyle=", page)


def assert_no_markup(answer):
    assert "<script>" not in answer.text and "<img" not in answer.text, answer.url


def words(page):
    """The text of a page without its tags."""
    page = re.sub(r"<title>.*?</title>", "", page)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


def code(page):
    """The text of a page whose tags only colour it."""
    return html.unescape(re.sub(r"<[^>]+>", "", page))
