"""ELF object files: what one defines and lacks, and a static library of several.

Formats: System V Application Binary Interface, edition 4.1, chapter 4 (ELF, in its 64-bit form),
and the `ar` format of System V and GNU: a member `/` with the symbols of all others, a member `//`
with names of more than 15 characters, then the files, each from an even offset. Times, owners and
rights are those that `ar -D` writes, so that a library is always the same.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _WRITE, _LOCAL = 2, 1, 0

_MAGIC, _END = b"!<arch>\n", b"`\n"
_SHORT = 15
_OFFSET = struct.Struct(">I")
_HEADER_BYTES = 60


@dataclass(frozen=True)
class Elf:
    """The symbols of an object file for x86-64.

    Attributes:
        defined: names that other objects find in it, sorted.
        undefined: names that it needs from others, sorted.
        writable_bytes: of its sections that a program may write to.
    """

    defined: tuple[str, ...]
    undefined: tuple[str, ...]
    writable_bytes: int

    @classmethod
    def read(cls, data: bytes) -> "Elf":
        """Return those of an object file.

        Raises:
            ValueError: it is not one for a 64-bit little-endian machine.
        """
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("this is no 64-bit little-endian ELF file")
        (start,) = struct.unpack_from("<Q", data, 0x28)
        (count,) = struct.unpack_from("<H", data, 0x3C)
        sections = [_SECTION.unpack_from(data, start + i * _SECTION.size) for i in range(count)]
        found = {True: set[str](), False: set[str]()}
        for section in sections:
            if section[1] == _SYMTAB:
                for name, is_here in _symbols(data, section, names=sections[section[6]]):
                    found[is_here].add(name)
        writable = sum(section[5] for section in sections if section[2] & _WRITE)
        return cls(tuple(sorted(found[True])), tuple(sorted(found[False])), writable)


def _symbols(
    data: bytes, table: tuple[int, ...], names: tuple[int, ...]
) -> Iterator[tuple[str, bool]]:
    """The name of each symbol that others may see, and whether it is defined here."""
    offset, size = table[4], table[5]
    for name, info, _, section, _, _ in _SYMBOL.iter_unpack(data[offset : offset + size]):
        if info >> 4 != _LOCAL and name:
            at = names[4] + name
            yield data[at : data.index(b"\0", at)].decode(), section != 0


def archive(members: Mapping[str, bytes]) -> bytes:
    """Return the static library of object files, by their names, in their order.

    Raises:
        ValueError: two of them define one symbol, a name holds a slash, or all are too large.
    """
    symbols = [
        (symbol, name) for name, data in members.items() for symbol in Elf.read(data).defined
    ]
    _check_names(members, [symbol for symbol, _ in symbols])
    long_names, spelled = b"", {}
    for name in members:
        is_long = len(name) > _SHORT
        spelled[name] = f"/{len(long_names)}" if is_long else f"{name}/"
        long_names += f"{name}/\n".encode() if is_long else b""
    names = b"".join(symbol.encode() + b"\0" for symbol, _ in symbols)
    index_bytes = _OFFSET.size * (1 + len(symbols)) + len(names)
    at = len(_MAGIC) + _member_bytes(index_bytes + index_bytes % 2)
    at += _member_bytes(len(long_names)) if long_names else 0
    offsets: dict[str, int] = {}
    for name, data in members.items():
        offsets[name] = at
        at += _member_bytes(len(data))
    if at >= 1 << 32:
        raise ValueError(f"a library of {at} bytes is too large for its index; make several")
    places = [len(symbols), *(offsets[name] for _, name in symbols)]
    index = b"".join(map(_OFFSET.pack, places)) + names
    out = _MAGIC + _member(f"{'/':<16}{0:<12}{0:<6}{0:<6}{0:<8}", index + b"\0" * (len(index) % 2))
    out += _member(f"{'//':<48}", long_names) if long_names else b""
    return out + b"".join(
        _member(f"{spelled[name]:<16}{0:<12}{0:<6}{0:<6}{'644':<8}", data)
        for name, data in members.items()
    )


def _check_names(members: Mapping[str, bytes], symbols: list[str]) -> None:
    for name in members:
        if "/" in name or not name.isascii():
            raise ValueError(f"{name!r} cannot be the name of a member; leave out slashes")
    twice = next((one for one in symbols if symbols.count(one) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is defined by two members; give each problem once")


def _member(about: str, data: bytes) -> bytes:
    return f"{about}{len(data):<10}".encode() + _END + data + b"\n" * (len(data) % 2)


def _member_bytes(size: int) -> int:
    return _HEADER_BYTES + size + size % 2
