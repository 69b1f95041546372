"""A judge or candidate process, and the log that takes what it prints."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

from attngate.gpu_runner import spawn
from attngate.gpu_runner.daemon.executors.pipe import FramePipe
from attngate.gpu_runner.worker import wire

if TYPE_CHECKING:
    from pathlib import Path

    from attngate.gpu_runner.daemon.executors.task import Reporter, Task

MAX_CANDIDATE_FRAME = 16 * 1024 * 1024
MAX_LOG = 4 * 1024 * 1024


class CappedLog:
    """Takes the output of processes through a pipe, and keeps its first part.

    A process must never stop because its log is full, so the rest is read and thrown away.
    """

    def __init__(self, path: Path, limit: int = MAX_LOG) -> None:
        """Create the log file, readable by this user only."""
        self._path, self._room = path, limit
        self._read_fd, self.write_fd = os.pipe()
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        self._thread = threading.Thread(target=self._pump, name=f"log {path.name}", daemon=True)
        self._thread.start()

    def note(self, text: str) -> None:
        """Add a line of the daemon's own."""
        os.write(self.write_fd, f"attngate: {text}\n".encode("utf-8", "replace")[:4000])

    def close(self) -> None:
        """Stop taking output; waits a moment for what is under way."""
        os.close(self.write_fd)
        self._thread.join(2.0)  # an escaped process may hold the pipe; the thread then outlives us

    def tail(self, size: int = 2000) -> str:
        """The last part of what was kept."""
        try:
            return self._path.read_bytes()[-size:].decode("utf-8", "replace")
        except OSError:
            return ""

    def _pump(self) -> None:
        with os.fdopen(self._read_fd, "rb", buffering=0) as source:
            while part := source.read(1 << 16):
                self._keep(part)
        os.close(self._file)

    def _keep(self, part: bytes) -> None:
        if self._room <= 0:
            return
        kept = part[: self._room]
        self._room -= len(kept)
        if self._room <= 0:
            kept += b"\nattngate: the log is full; what follows was not kept\n"
        try:
            os.write(self._file, kept)
        except OSError:  # a full disk costs the log, not the job
            self._room = 0


class Worker:
    """A running worker process that answers one frame with one frame."""

    def __init__(self, role: str, task: Task, log: CappedLog, reporter: Reporter) -> None:
        """Start it; raises ProgramMissingError when the interpreter cannot be run."""
        self.role = role
        to_worker, write_fd = os.pipe()
        read_fd, from_worker = os.pipe()
        try:
            self._process = spawn.start(
                _argv(task, role, to_worker, from_worker),
                cwd=str(task.folder),
                env=task.environment,
                stdout=log.write_fd,
                stderr=subprocess.STDOUT,
                pass_fds=(to_worker, from_worker),
                die_with_parent=True,
            )
        except BaseException:
            os.close(read_fd)
            os.close(write_fd)
            raise
        finally:
            os.close(to_worker)
            os.close(from_worker)
        cap = MAX_CANDIDATE_FRAME if role == "candidate" else wire.MAX_FRAME
        self._pipe = FramePipe(
            read_fd, write_fd, self._process.has_ended, reporter.is_cancelled, cap
        )

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Send a request and return the answer; raises as `FramePipe` does."""
        deadline = time.monotonic() + timeout_s
        self._pipe.send(request, deadline)
        return self._pipe.receive(deadline)

    def end(self, wait_s: float = 0.0) -> str:
        """Kill the process and its group, after `wait_s` for a process that is on its way out.

        Returns:
            In words how the process had ended by itself, "" if it had not.
        """
        had_ended = self._process.ended_within(wait_s)
        self._pipe.close()
        status = self._process.end()
        return _described(status) if had_ended else ""


def _argv(task: Task, role: str, fd_in: int, fd_out: int) -> list[str]:
    return [task.interpreter, "-I", "-B", str(task.entry), role, str(fd_in), str(fd_out)]


def _described(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
