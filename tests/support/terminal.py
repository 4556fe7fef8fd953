"""A real pseudo-terminal with a program on it: for what only happens on one. Used by labs and a few tests.

The program has the terminal as its controlling one, so that a resize and Ctrl-C reach it as they do at a desk.
"""

import contextlib
import fcntl
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import IO


class Terminal(contextlib.AbstractContextManager["Terminal"]):
    """`command` on a terminal of so many columns; with `apart` its stderr is a pipe and its stdin is empty."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        directory: pathlib.Path,
        *,
        columns: int = 100,
        rows: int = 40,
        apart: bool = False,
    ) -> None:
        self._command, self._environment, self._directory = command, environment, directory
        self._size, self._apart = (rows, columns), apart
        self._said = bytearray()
        self._errors = b""

    def __enter__(self) -> "Terminal":
        self._ours, theirs = pty.openpty()
        self._resize(*self._size)
        self.process = subprocess.Popen(
            self._command,
            env=dict(self._environment),
            cwd=self._directory,
            stdin=subprocess.DEVNULL if self._apart else theirs,
            stdout=theirs,
            stderr=subprocess.PIPE if self._apart else theirs,
            start_new_session=True,
            preexec_fn=None if self._apart else _take_terminal,  # noqa: PLW1509 - the child is ours and single
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self._listener = threading.Thread(target=self._listen, args=(self.process.stderr,))
        self._listener.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        self._listener.join()
        if self.process.stderr is not None:
            self.process.stderr.close()
        os.close(self._ours)

    @property
    def text(self) -> str:
        """Everything that was written on the terminal so far."""
        return bytes(self._said).decode(errors="replace")

    @property
    def errors(self) -> str:
        """What stderr had, where it is apart."""
        return self._errors.decode()

    def wait(self, within: float = 30.0) -> int:
        """Until the program has ended and all of it is read; its exit code."""
        code = self.process.wait(within)
        self._reader.join(within)
        self._listener.join(within)
        return code

    def type(self, text: str) -> None:
        """Press keys: `\\x03` is Ctrl-C."""
        os.write(self._ours, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Another size; the program is told as by a window."""
        self._resize(rows, columns)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGWINCH)

    def _resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        while True:
            ready, _, _ = select.select([self._ours], [], [], 0.2)
            if not ready:
                if self.process.poll() is not None:
                    return
                continue
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # the other end is closed: on Linux that is how it says so
                return
            if not data:
                return
            self._said += data

    def _listen(self, stream: IO[bytes] | None) -> None:
        if stream is not None:
            self._errors = stream.read()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
