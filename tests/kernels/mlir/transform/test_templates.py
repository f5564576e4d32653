"""What a placeholder stands for: a word, or whole lines."""

from pathlib import Path

import pytest

from tilewise.kernels.mlir.transform.sequences import filled

TEXT = """\
op @name_$lanes(%${operand}_parts) {sizes = $sizes} {
  ^bb0:
    $body
  yield
}
"""


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "template.mlir"
    path.write_text(TEXT)
    return path


def test_words_take_their_place_and_braces_stay(template: Path) -> None:
    text = filled(template, lanes=16, operand="b", sizes=[0, 16], body="")
    assert text.startswith("op @name_16(%b_parts) {sizes = [0, 16]} {\n")


@pytest.mark.parametrize("body", ["first {\n  second\n}", "first {\n  second\n}\n"])
def test_whole_lines_get_the_blanks_of_their_placeholder(template: Path, body: str) -> None:
    text = filled(template, lanes=16, operand="b", sizes=[], body=body)
    assert text.endswith("  ^bb0:\n    first {\n      second\n    }\n  yield\n}\n")


def test_no_lines_leave_no_line(template: Path) -> None:
    text = filled(template, lanes=16, operand="b", sizes=[], body="")
    assert text.endswith("  ^bb0:\n  yield\n}\n")


def test_a_value_is_not_filled_again(template: Path) -> None:
    text = filled(template, lanes="$sizes", operand="b", sizes=[], body="$lanes\n")
    assert "@name_$sizes(" in text
    assert "    $lanes\n" in text


@pytest.mark.parametrize("missing", ["lanes", "operand", "sizes", "body"])
def test_a_placeholder_without_a_value_is_an_error(template: Path, missing: str) -> None:
    values = {"lanes": 16, "operand": "b", "sizes": [], "body": ""}
    del values[missing]
    with pytest.raises(KeyError, match=missing):
        filled(template, **values)
