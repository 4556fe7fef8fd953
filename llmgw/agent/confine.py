"""Opening, walking and removing below a directory that others may write to, by descriptor only.

Called by `agent.cache` (listing) and `agent.collect` (removal), and by whoever makes a directory of
the agent's own. A path that was checked and is then
used can be another file by the time it is used; a descriptor cannot. No symbolic link is ever
followed below the directory that is opened first.
"""

import contextlib
import ctypes
import dataclasses
import errno
import os
import pathlib
import stat
from collections.abc import Iterator

_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_RENAME_NOREPLACE = 1
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DEEPEST = 32


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """Something below a directory that is no directory. `name` is relative, with slashes."""

    name: str
    status: os.stat_result

    @property
    def regular(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)


def own_directory(path: pathlib.Path) -> pathlib.Path:
    """`path`, made with mode 0700 unless it is there.

    A link is not followed, wherever it leads: what we trim, prune and set aside there would be somebody else's.
    Raises OSError.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if path.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, "it is a link, and none is followed here", str(path))
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    return path


def open_root(path: os.PathLike[str]) -> int:
    """A descriptor of the directory that everything else happens below."""
    return os.open(path, _DIRECTORY)


def open_below(root: int, name: str, flags: int = _DIRECTORY) -> int:
    """Open `name`, relative to `root`, with no link and no `..` on the way.

    OSError where it is not there, leaves `root` or meets a symbolic link (EXDEV, ELOOP, ENOTDIR).
    """
    try:
        return _openat2(root, name, flags | os.O_CLOEXEC)
    except OSError as error:
        # EPERM: a container's filter from before the call existed.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return open_stepwise(root, name, flags | os.O_CLOEXEC)


def open_stepwise(root: int, name: str, flags: int) -> int:
    """As `open_below`, one component at a time: for kernels before 5.6."""
    *parents, last = name.split("/")
    if any(part in ("", ".", "..") for part in (*parents, last)):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)
    with contextlib.ExitStack() as opened:
        at = root
        for part in parents:
            at = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            opened.callback(os.close, at)
        return os.open(last, flags | os.O_NOFOLLOW, dir_fd=at)


def _openat2(root: int, name: str, flags: int) -> int:
    how = _OpenHow(flags, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
    fd = _libc.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(root),
        ctypes.c_char_p(os.fsencode(name)),
        ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), name)
    return int(fd)


@contextlib.contextmanager
def opened_below(root: int, name: str, flags: int = _DIRECTORY) -> Iterator[int]:
    """`open_below`, closed on the way out."""
    fd = open_below(root, name, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def read_below(root: int, name: str, most: int) -> bytes:
    """The first `most` bytes of the regular file `name` below `root`."""
    # NONBLOCK: a FIFO that somebody put there must not hold us.
    with opened_below(root, name, os.O_RDONLY | os.O_NONBLOCK) as fd:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "no regular file", name)
        return os.pread(fd, most, 0)


def walk(root: int, *, prefix: str = "", depth: int = 0) -> list[Found]:
    """Everything below `root` that is no directory. OSError where it is deeper than 32 directories."""
    if depth > _DEEPEST:
        raise OSError(errno.ELOOP, f"deeper than {_DEEPEST} directories", prefix)
    found: list[Found] = []
    for name in sorted(os.listdir(root)):
        status = os.stat(name, dir_fd=root, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            with opened_below(root, name) as inner:
                found += walk(inner, prefix=f"{prefix}{name}/", depth=depth + 1)
        else:
            found.append(Found(f"{prefix}{name}", status))
    return found


def rename_new(root: int, old: str, new: str) -> None:
    """Rename directly below `root`; FileExistsError instead of replacing anything."""
    code = _libc.renameat2(root, os.fsencode(old), root, os.fsencode(new), _RENAME_NOREPLACE)
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), old)


def remove_tree(parent: int, name: str) -> int:
    """Remove the directory `name` directly below `parent` with what is in it. Returns the bytes freed.

    A link found inside is removed itself, never what it points to.
    """
    freed = 0
    with opened_below(parent, name) as fd:
        for each in os.listdir(fd):
            status = os.stat(each, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                freed += remove_tree(fd, each)
            else:
                os.unlink(each, dir_fd=fd)
                freed += status.st_size if stat.S_ISREG(status.st_mode) else 0
    os.rmdir(name, dir_fd=parent)
    return freed
