"""Ties a process to its parent: `guard.py PARENT PROGRAM ARGUMENTS...` becomes PROGRAM.

Run as a file before the real program is executed in its place. The kernel then kills the program
when the parent dies, however it dies; a program that hangs would not notice by itself. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask for the signal, make sure the parent was still there to send it, and go on."""
    parent = int(sys.argv[1])
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent has already gone")
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.execvpe(sys.argv[2], sys.argv[2:], os.environ)  # noqa: S606 - becoming it is the point


if __name__ == "__main__":
    main()
