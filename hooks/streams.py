"""Standard streams that cannot decide a verdict.

A reader that goes away, a full device, or a stream that was closed before we started costs output,
never the exit code. Descriptors 0 to 2 are always occupied, so that no file that is opened later can
become somebody's standard output.
"""

from __future__ import annotations

import io
import os
import sys


class _BestEffort(io.RawIOBase):
    """Raw output to a descriptor; what cannot be written is dropped and remembered."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self.lost = False

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        if self.lost:
            return view.nbytes
        try:
            return os.write(self._descriptor, view)
        except OSError:
            self.lost = True
            return view.nbytes


def occupy_descriptors() -> None:
    """Point each closed descriptor among 0, 1 and 2 at /dev/null, also for child processes."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)


def _text(descriptor: int) -> io.TextIOWrapper:
    raw = _BestEffort(descriptor)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),  # type: ignore[arg-type, unused-ignore]
        encoding="utf-8",
        # A file name that is not UTF-8 must not turn a report into a crash.
        errors="backslashreplace",
        line_buffering=True,
    )


def install() -> None:
    """Replace sys.stdout and sys.stderr by streams that never raise for a lost reader."""
    occupy_descriptors()
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        before = getattr(sys, name)
        if before is not None:
            before.flush()
        setattr(sys, name, _text(descriptor))
