"""Logs: the last lines of a job's or the daemon's log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attngate.gpu_runner import paths
from attngate.gpu_runner.errors import RunnerError
from attngate.gpu_runner.protocol import LogLines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.gpu_runner.daemon.server import Server, Session
    from attngate.gpu_runner.protocol import Logs, Reply

_MOST_BYTES = 2 * 1024 * 1024
_MOST_LINES = 10_000


def handle(server: Server, session: Session, request: Logs) -> Iterator[Reply]:
    """Read the end of the file."""
    del server, session
    if request.id and not re.fullmatch(r"[0-9a-f]+-\d+", request.id):
        raise RunnerError(f"{request.id!r} is not a job", "see `attngate daemon status`")
    path = paths.job_log(request.id) if request.id else paths.daemon_log()
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _MOST_BYTES))
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        raise RunnerError(
            f"there is no log of job {request.id}", "a job that has not started has none"
        ) from None
    count = max(0, min(request.lines, _MOST_LINES))
    lines = text.splitlines()
    yield LogLines(path=str(path), lines=tuple(lines[len(lines) - count :] if count else ()))
