"""Code as HTML with the classes of the style sheet, and lines that differ."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import ClassVar

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import RegexLexer
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

PREFIX = "c-"
MOST_HIGHLIGHTED = 120_000  # characters; a longer text is shown plain


class MlirLexer(RegexLexer):
    """What stands out in MLIR: operations, values, symbols, attributes, types, comments."""

    name = "MLIR"
    tokens: ClassVar = {
        "root": [
            (r"//[^\n]*", Comment.Single),
            (r'"(?:[^"\\\n]|\\.)*"', String),
            (r"%[\w$.-]+(?::\d+)?", Name.Variable),
            (r"@[\w$.-]+", Name.Function),
            (r"\^\w+", Name.Label),
            (r"![\w.]+", Keyword.Type),
            (r"#[\w.]+", Name.Decorator),
            (r"\b(?:[fi]\d+|bf16|index|tensor|memref|vector)\b", Keyword.Type),
            (r"\b[a-z_]\w*(?:\.\w+)+", Keyword),
            (r"\b(?:module|attributes|in|to|true|false|unit)\b", Keyword.Reserved),
            (r"-?\b\d[\w.+-]*", Number),
            (r"->|[=:*]", Operator),
            (r"[()\[\]{}<>,?]", Punctuation),
            (r"\w+", Name),
            (r"\s+|.", Text),
        ]
    }
    flags = re.MULTILINE


def mlir(text: str) -> Markup:
    """A script."""
    return _marked(text, MlirLexer())


def python(text: str) -> Markup:
    """A kernel."""
    return _marked(text, PythonLexer())


def plain(text: str) -> Markup:
    """Anything else."""
    return Markup("<pre>{}</pre>").format(text)


def _marked(text: str, lexer: RegexLexer) -> Markup:
    if len(text) > MOST_HIGHLIGHTED:
        return plain(text)
    made = highlight(text, lexer, HtmlFormatter(cssclass="code", classprefix=PREFIX))
    return Markup(made)  # the formatter has escaped it


def differences(left: Sequence[str], right: Sequence[str]) -> list[tuple[str, str, str]]:
    """The lines of two texts beside each other: `same`, `changed`, `removed`, `added`."""
    rows: list[tuple[str, str, str]] = []
    matcher = SequenceMatcher(a=left, b=right, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        for index in range(max(b - a, d - c)):
            old = left[a + index] if a + index < b else ""
            new = right[c + index] if c + index < d else ""
            said = "same" if kind == "equal" else _kind(old, new)
            rows.append((said, old, new))
    return rows


def _kind(old: str, new: str) -> str:
    if old and new:
        return "changed"
    return "removed" if old else "added"
