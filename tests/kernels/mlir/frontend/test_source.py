"""Weights are cut out of a module's text, and nothing else is."""

import pytest

from tilewise.kernels.mlir.frontend.read import without_weights

LONG, SHORT = b'"0x04000000' + b"ab" * 3000 + b'"', b'"0x0400000001000000"'
TEXT = b'func.func @f() attributes {a = "{-#"} {\n}\n'


def section(*entries: bytes) -> bytes:
    return b"{-#\n  dialect_resources: { builtin: { " + b", ".join(entries) + b" } }\n#-}\n"


def test_a_text_without_weights_stays() -> None:
    for text in (b"", TEXT, TEXT + section(b"s: " + SHORT), b"\0" * 100, b"ML\xefR" + LONG):
        assert without_weights(text) == text


@pytest.mark.parametrize("kept", range(4))
def test_long_resources_are_cut_with_one_comma_each(kept: int) -> None:
    names = [b"a", b'"b c"', b"_d.1", b"e$2"]
    entries = [name + b": " + (SHORT if i == kept else LONG) for i, name in enumerate(names)]
    found = without_weights(TEXT + section(*entries)).removeprefix(TEXT)
    assert found.split() == section(names[kept] + b": " + SHORT).split()


def test_all_resources_may_be_cut() -> None:
    found = without_weights(TEXT + section(b"a: " + LONG, b"b : " + LONG))
    assert found.split() == (TEXT + section()).split()


def test_a_literal_becomes_a_resource() -> None:
    text = b"%0 = arith.constant dense<" + LONG + b"> : tensor<1500xf32>\n"
    assert without_weights(text) == (
        b"%0 = arith.constant dense_resource<__elided__> : tensor<1500xf32>\n"
    )


@pytest.mark.parametrize(
    "text",
    [b"{-#\n" + b"a" * 4_000_000 + b': "0x' + b"0" * 4_000_000, b'"0x' * 2_000_000,
     section(*[b"n: " + LONG] * 500), b'{-# "' * 500_000, b" : , " * 1_000_000 + LONG],
    ids=["names", "begun", "entries", "quotes", "commas"],
)  # fmt: skip
def test_the_way_through_a_text_is_straight(text: bytes) -> None:
    """A way that went back over what it has seen would take hours here."""
    assert len(without_weights(text)) <= len(text)
