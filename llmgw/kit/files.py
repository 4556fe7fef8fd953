"""Small files that are either whole or absent: written beside, synced, renamed, directory synced."""

import errno
import os
import pathlib
import stat


def write_atomic(path: pathlib.Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`: after a crash it holds the old bytes or the new ones, never a part.

    Raises OSError that names the file, also that of a full disk, which names none by itself.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    sync_directory(path.parent)


def write_to(path: pathlib.Path, data: bytes) -> None:
    """Write where a person points: whole or not at all where that is a file or nothing, behind a link too; into a device
    or a pipe as it is. OSError.
    """
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_bytes(data)
    else:
        write_atomic(path, data, mode=0o644)


def open_regular(path: pathlib.Path, flags: int = os.O_RDONLY, mode: int = 0o600) -> int:
    """A descriptor of the regular file `path`, which children do not inherit.

    Whoever may write to its directory can put a FIFO there, on which we would wait for ever, or a link that leads
    elsewhere. Raises OSError where it is no regular file.
    """
    refused = OSError(errno.EINVAL, "it is no regular file", str(path))
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        # A link, and a FIFO that nobody reads or a socket.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise refused from None
        raise
    kind = os.fstat(fd).st_mode
    if not stat.S_ISREG(kind):
        os.close(fd)
        raise (
            IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            if stat.S_ISDIR(kind)
            else refused
        )
    return fd


def read_regular(path: pathlib.Path, most: int = -1) -> bytes:
    """The bytes of the regular file `path`, at most `most` of them. Raises OSError."""
    with open(open_regular(path), "rb") as file:
        return file.read(most)


def sync_directory(path: pathlib.Path) -> None:
    """Make renames and removals in `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
