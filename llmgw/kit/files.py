"""Small files that are either whole or absent: written beside, synced, renamed, directory synced."""

import os
import pathlib


def write_atomic(path: pathlib.Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`: after a crash it holds the old bytes or the new ones, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode), "wb"
        ) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def sync_directory(path: pathlib.Path) -> None:
    """Make renames and removals in `path` durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
