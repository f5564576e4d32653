"""A static library of object files: the `ar` format with an index of symbols, always the same.

The format is that of System V and GNU: a member `/` with the symbols of all others, a member `//`
with names of more than 15 characters, then the files, each from an even offset. Times, owners and
rights are those that `ar -D` writes.
"""

import struct
from collections.abc import Mapping

from tilewise.kernels.native.objects.elf import Elf

_MAGIC, _END = b"!<arch>\n", b"`\n"
_SHORT = 15
_OFFSET = struct.Struct(">I")
_HEADER_BYTES = 60


def archive(members: Mapping[str, bytes]) -> bytes:
    """The library of object files, by their names, in their order.

    Raises:
        ValueError: two of them define one symbol, a name holds a slash, or all are too large.
    """
    symbols = [(name, Elf.read(data).defined) for name, data in members.items()]
    _check_names(members, [symbol for _, defined in symbols for symbol in defined])
    long_names, spelled = _spelled(members)
    index_size = _OFFSET.size * (1 + sum(len(defined) for _, defined in symbols))
    index_size += sum(len(symbol) + 1 for _, defined in symbols for symbol in defined)
    index_size += index_size % 2
    at = len(_MAGIC) + _member_bytes(index_size)
    at += _member_bytes(len(long_names)) if long_names else 0
    offsets: dict[str, int] = {}
    for name, data in members.items():
        offsets[name] = at
        at += _member_bytes(len(data))
    if at >= 1 << 32:
        raise ValueError(f"a library of {at} bytes is too large for its index; make several")
    out = _MAGIC + _member("/", _index(symbols, offsets))
    out += _member("//", long_names) if long_names else b""
    return out + b"".join(_member(spelled[name], data) for name, data in members.items())


def _check_names(members: Mapping[str, bytes], symbols: list[str]) -> None:
    for name in members:
        if "/" in name or not name.isascii():
            raise ValueError(f"{name!r} cannot be the name of a member; leave out slashes")
    twice = next((one for one in symbols if symbols.count(one) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is defined by two members; give each problem once")


def _spelled(members: Mapping[str, bytes]) -> tuple[bytes, dict[str, str]]:
    """The member of long names, and how each member's header names it."""
    long_names, spelled = b"", {}
    for name in members:
        if len(name) <= _SHORT:
            spelled[name] = f"{name}/"
        else:
            spelled[name] = f"/{len(long_names)}"
            long_names += f"{name}/\n".encode()
    return long_names, spelled


def _index(symbols: list[tuple[str, tuple[str, ...]]], offsets: Mapping[str, int]) -> bytes:
    """How many symbols there are, where the member of each begins, and their names."""
    places = [offsets[name] for name, defined in symbols for _ in defined]
    names = b"".join(symbol.encode() + b"\0" for _, defined in symbols for symbol in defined)
    index = b"".join(map(_OFFSET.pack, [len(places), *places])) + names
    return index + b"\0" * (len(index) % 2)


def _member(name: str, data: bytes) -> bytes:
    if name in ("/", "//"):
        about = f"{name:<16}{'':<32}" if name == "//" else f"{name:<16}{0:<12}{0:<6}{0:<6}{0:<8}"
    else:
        about = f"{name:<16}{0:<12}{0:<6}{0:<6}{'644':<8}"
    return f"{about}{len(data):<10}".encode() + _END + data + b"\n" * (len(data) % 2)


def _member_bytes(size: int) -> int:
    return _HEADER_BYTES + size + size % 2
