"""What a relocatable ELF file for x86-64 defines and lacks: enough to link and to check one.

The format: System V Application Binary Interface, edition 4.1, chapter 4, in its 64-bit form.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _WRITE, _LOCAL = 2, 1, 0


@dataclass(frozen=True)
class Elf:
    """An object file's symbols.

    Attributes:
        defined: names that other objects find in it, sorted.
        undefined: names that it wants of others, sorted.
        writable_bytes: of its sections that a program may write to.
    """

    defined: tuple[str, ...]
    undefined: tuple[str, ...]
    writable_bytes: int

    @classmethod
    def read(cls, data: bytes) -> "Elf":
        """Those of an object file.

        Raises:
            ValueError: it is none for a 64-bit little-endian machine.
        """
        if data[:6] != b"\x7fELF\x02\x01":
            raise ValueError("this is no 64-bit little-endian ELF file")
        (start,) = struct.unpack_from("<Q", data, 0x28)
        (count,) = struct.unpack_from("<H", data, 0x3C)
        sections = [_SECTION.unpack_from(data, start + i * _SECTION.size) for i in range(count)]
        defined: set[str] = set()
        undefined: set[str] = set()
        for section in sections:
            if section[1] == _SYMTAB:
                names = sections[section[6]]
                for name, is_here in _symbols(data, section, names):
                    (defined if is_here else undefined).add(name)
        writable = sum(section[5] for section in sections if section[2] & _WRITE)
        return cls(tuple(sorted(defined)), tuple(sorted(undefined)), writable)


def _symbols(
    data: bytes, table: tuple[int, ...], names: tuple[int, ...]
) -> Iterator[tuple[str, bool]]:
    """The name of each symbol that others may see, and whether it is defined here."""
    offset, size = table[4], table[5]
    for name, info, _, section, _, _ in _SYMBOL.iter_unpack(data[offset : offset + size]):
        if info >> 4 != _LOCAL and name:
            at = names[4] + name
            yield data[at : data.index(b"\0", at)].decode(), section != 0
