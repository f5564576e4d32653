"""Vectors of LLVM IR that leave lanes of a register free, as whole registers and masks.

LLVM takes a vector of 14 floats apart to load and to store it: 8, 4 and 2, and puts the parts
together. A register of 16 lanes loads it at once, where a mask says which lanes exist. Lanes beyond
them hold zeros, and are not written.
"""

import re

REGISTER_BITS = 512
_BITS = {"float": 32, "double": 64}  # masks of shuffles are vectors of i32
_VECTOR = re.compile(r"<(\d+) x (float|double)>")
_LANEWISE = re.compile(
    r"^\s*%\S+ = (?:f?(?:add|mul|sub)|phi|extractelement|insertelement) [^<]*<\d+ x \w+>[^<]*$"
)
_LOAD = re.compile(r"^(\s*%\S+ = )load (<\S+ x \w+>), ptr (%\S+), align (\d+)$")
_STORE = re.compile(r"^(\s*)store (<\S+ x \w+>) (%\S+), ptr (%\S+), align (\d+)$")
_SPLAT = re.compile(
    r"^\s*%\S+ = shufflevector (<(\d+) x \w+>) %\S+, \1 poison, <\2 x i32> zeroinitializer$"
)
_INTRINSIC = {"float": "f32", "double": "f64"}


def in_whole_registers(text: str) -> str:
    """The module with vectors of more than half a register as whole ones.

    A kind of vector stays as it is where anything but loads, stores, sums, products and splats is
    done to it.
    """
    kinds = {found[0]: (int(found[1]), found[2]) for found in _VECTOR.finditer(text)}
    declared = set[str]()
    for kind, (count, element) in kinds.items():
        whole = REGISTER_BITS // _BITS[element]
        if whole // 2 < count < whole and _is_simple(text, kind):
            text = _widened(text, kind, count, whole, element)
            declared |= {f"declare {one}" for one in _declarations(whole, element)}
    return "\n".join([text, *sorted(declared)]) if declared else text


def _is_simple(text: str, kind: str) -> bool:
    patterns = (_LOAD, _STORE, _SPLAT, _LANEWISE)
    # a shuffle names the kind that it makes by its mask alone
    lines = [line for line in text.split("\n") if kind in line or "shufflevector" in line]
    lines = [line for line in lines if not _SPLAT.match(line)]
    return all(any(pattern.match(line) for pattern in patterns) for line in lines)


def _widened(text: str, kind: str, count: int, whole: int, element: str) -> str:
    wide = f"<{whole} x {element}>"
    lanes = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(whole))
    suffix, mask = _suffix(whole, element), f"<{whole} x i1> <{lanes}>"

    def line(old: str) -> str:
        if kind not in old:
            return old
        if found := _LOAD.match(old):
            name, _, at, align = found.groups()
            return (
                f"{name}call {wide} @llvm.masked.load.{suffix}"
                f"(ptr {at}, i32 {align}, {mask}, {wide} zeroinitializer)"
            )
        if found := _STORE.match(old):
            blank, _, value, at, align = found.groups()
            return (
                f"{blank}call void @llvm.masked.store.{suffix}"
                f"({wide} {value}, ptr {at}, i32 {align}, {mask})"
            )
        return old.replace(kind, wide).replace(f"<{count} x i32> zero", f"<{whole} x i32> zero")

    return "\n".join(line(old) for old in text.split("\n"))


def _suffix(whole: int, element: str) -> str:
    return f"v{whole}{_INTRINSIC[element]}.p0"


def _declarations(whole: int, element: str) -> tuple[str, str]:
    wide, suffix = f"<{whole} x {element}>", _suffix(whole, element)
    return (
        f"{wide} @llvm.masked.load.{suffix}(ptr, i32, <{whole} x i1>, {wide})",
        f"void @llvm.masked.store.{suffix}({wide}, ptr, i32, <{whole} x i1>)",
    )
