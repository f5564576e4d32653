"""Reading files that others may have put in place: a link, a device or a FIFO is never opened for
data, and nothing larger than expected is read.
"""

import errno
import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG

MOST_BYTES = 64 << 20
"""Of a script, a kernel, a lock file, or an object; the largest of those are about 1 MiB."""


def read_regular(path: Path, most: int = MOST_BYTES, *, follows_links: bool = False) -> bytes:
    """Return the content of a regular file.

    Args:
        path: of the file.
        most: bytes that it may have.
        follows_links: whether the path itself may be a link to such a file.

    Raises:
        OSError: it cannot be read, is not a regular file, or has more bytes.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0)
    if not follows_links:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        handle = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not follows_links:
            raise OSError(errno.ELOOP, "it is a link, not a regular file", str(path)) from error
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket; a device without a driver
            raise _not_regular(path) from error
        raise
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not S_ISREG(status.st_mode):
            raise _not_regular(path)
        content = b"" if status.st_size > most else file.read(most + 1)
        if status.st_size > most or len(content) > most:
            raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
        return content


def _not_regular(path: Path) -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file", str(path))
