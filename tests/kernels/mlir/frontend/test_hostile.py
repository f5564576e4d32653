"""Whatever a file holds: an error on one line, or what MLIR makes of it; this process goes on."""

import io
import random
import subprocess
import sys

import pytest

from tilewise.kernels.errors import LimitError, ModuleError
from tilewise.kernels.mlir.frontend.read import ReadLimits, read_module, read_op, without_weights

ir = pytest.importorskip("iree.compiler.ir", reason="iree-base-compiler is not installed")


GOOD = b"""
func.func @f(%a: tensor<4x5xf32>, %b: tensor<5x6xf32>, %c: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<4x5xf32>, tensor<5x6xf32>)
      outs(%c : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %0 : tensor<4x6xf32>
}
"""
DEEP = 100_000
LARGE = 10 << 20
LIMITS = ReadLimits(seconds=30.0, memory_bytes=2 << 30)


def bytecode() -> bytes:
    with ir.Context():
        file = io.BytesIO()
        ir.Module.parse(GOOD).operation.write_bytecode(file)
        return file.getvalue()


def broken() -> dict[str, bytes]:
    rng = random.Random(3)
    code = bytecode()
    noise = bytes(rng.randrange(256) for _ in range(200))
    return {
        "garbage": rng.randbytes(LARGE),
        "one word": b"x" * LARGE,
        "null": GOOD.replace(b"func.func", b"func\0func"),
        "modules": b"module {" * DEEP + b"}" * DEEP,
        "types": b"func.func private @f(" + b"tuple<" * DEEP + b"f32" + b">" * DEEP + b")",
        "attributes": b"module attributes {a.b = " + b"[" * DEEP + b"]" * DEEP + b"} {}",
        "maps": b"#m = affine_map<(d0) -> (" + b"(" * DEEP + b"d0" + b")" * DEEP + b")>\n",
        "unterminated": b'module attributes {a.b = "' + b"y" * LARGE,
        "no alias": b"#a = [#a]\nmodule attributes {a.b = #a} {}",
        "truncated": code[: len(code) // 2],
        "overwritten": code[:60] + noise + code[60 + len(noise) :],
        "cut off": GOOD[:200],
        "bytes in an error": b'func.func @f() { func.call @"\\FF"() : () -> ()\n return }',
        "an ONNX model": b"\x08\x08\x12\x07pytorch",
    }


def odd() -> dict[str, bytes]:
    chain = "\n".join(f"#a{i + 1} = [#a{i}, #a{i}]" for i in range(60))
    return {
        "nothing": b"",
        "a large attribute": b'module attributes {a.b = "' + b"y" * LARGE + b'"} {}',
        "aliases": f"#a0 = []\n{chain}\nmodule attributes {{a.b = #a60}} {{}}".encode(),
        "a large splat": b"func.func @f() -> tensor<1000000x1000000xf32> {\n"
        b"%0 = arith.constant dense<1.0> : tensor<1000000x1000000xf32>\n"
        b"return %0 : tensor<1000000x1000000xf32> }",
    }


@pytest.mark.full
@pytest.mark.parametrize("name", broken())
def test_a_broken_module_is_refused(name: str) -> None:
    with pytest.raises(ModuleError) as refused:
        read_module(broken()[name], LIMITS)
    message = str(refused.value)
    assert message.startswith("the module was not read: ")
    assert message.isprintable() and len(message) < 400
    assert "Traceback" not in message


@pytest.mark.parametrize("name", odd())
def test_an_odd_module_has_no_problem(name: str) -> None:
    assert read_module(odd()[name], LIMITS).to_json() == {"problems": [], "skipped": []}


def test_bytecode_is_read_as_its_text_is() -> None:
    assert read_module(bytecode()).problems == read_module(GOOD).problems


@pytest.mark.full
@pytest.mark.parametrize(("old", "new", "reason"), [
    (b"4x", b"4294967297x", "out of range"), (b"4x", b"0x", "without elements"),
    (b"4x", b"?x", "dynamic"), (b"f32", b"f80", "multiplies f80"),
    (b"f32", b"i64", "multiplies i64"),
    (b"4x5xf32>", b'4x5xf32, "blocks">', "encoding"),
])  # fmt: skip
def test_a_size_or_a_type_that_no_problem_has(old: bytes, new: bytes, reason: str) -> None:
    imported = read_module(GOOD.replace(old, new))
    assert not imported.occurrences
    assert [reason in one.reason for one in imported.skipped] == [True]


@pytest.mark.full
@pytest.mark.parametrize(("name", "shown"), [
    (rb"a\1B[2J\0Ab", r"@a\x1b[2J\nb"), (rb"\FF x", r"@\xff x"), (b"caf\xc3\xa9", "@caf\xe9"),
])  # fmt: skip
def test_names_are_shown_on_one_line_that_is_text(name: bytes, shown: str) -> None:
    module = GOOD.replace(b"@f", b'@"' + name + b'"')
    (found,) = read_module(module).occurrences
    assert found.where == f"{shown} 3:8 linalg.matmul"
    assert read_op(module, found.where).found == found


def test_the_limits_hold() -> None:
    with pytest.raises(ModuleError, match="time limit"):
        read_module(GOOD, ReadLimits(seconds=0.05))
    with pytest.raises(ModuleError, match="memory"):
        read_module(GOOD, ReadLimits(memory_bytes=1 << 20))
    with pytest.raises(LimitError):
        read_module(GOOD, ReadLimits(seconds=0.0))


def test_a_child_may_write_a_module_larger_than_what_it_may_print() -> None:
    code = (
        "import resource\n"
        "from tilewise.kernels.mlir.frontend.read import on_disk\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))\n"
        "with on_disk(b'x' * 5000) as path:\n"
        "    assert path.stat().st_size == 5000\n"
        "assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == 1000\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


LONG_BLOB, SHORT_BLOB = b'"0x04000000' + b"ab" * 3000 + b'"', b'"0x0400000001000000"'
TEXT = b'func.func @f() attributes {a = "{-#"} {\n}\n'


def section(*entries: bytes) -> bytes:
    return b"{-#\n  dialect_resources: { builtin: { " + b", ".join(entries) + b" } }\n#-}\n"


SHORT = TEXT + section(b"s: " + SHORT_BLOB)
LITERAL = b"%0 = arith.constant dense<" + LONG_BLOB + b"> : tensor<1500xf32>\n"


def test_a_text_without_weights_stays_and_long_ones_are_cut() -> None:
    for text in (b"", TEXT, SHORT, b"\0" * 100, b"ML\xefR" + LONG_BLOB):
        assert without_weights(text) == text
    found = without_weights(TEXT + section(b"a: " + LONG_BLOB, b"b : " + LONG_BLOB))
    assert found.split() == (TEXT + section()).split()
    cut = LITERAL.replace(b"dense<" + LONG_BLOB, b"dense_resource<__elided__")
    assert without_weights(LITERAL) == cut


@pytest.mark.parametrize("kept", range(4))
def test_long_resources_are_cut_with_one_comma_each(kept: int) -> None:
    names = [b"a", b'"b c"', b"_d.1", b"e$2"]
    entries = [
        name + b": " + (SHORT_BLOB if i == kept else LONG_BLOB) for i, name in enumerate(names)
    ]
    found = without_weights(TEXT + section(*entries)).removeprefix(TEXT)
    assert found.split() == section(names[kept] + b": " + SHORT_BLOB).split()


@pytest.mark.parametrize(
    "text",
    [b"{-#\n" + b"a" * 4_000_000 + b': "0x' + b"0" * 4_000_000, b'"0x' * 2_000_000,
     section(*[b"n: " + LONG_BLOB] * 500), b'{-# "' * 500_000, b" : , " * 1_000_000 + LONG_BLOB],
    ids=["names", "begun", "entries", "quotes", "commas"],
)  # fmt: skip
def test_the_way_through_a_text_is_straight(text: bytes) -> None:
    """A way that went back over what it has seen would take hours here."""
    assert len(without_weights(text)) <= len(text)
