"""The daemon's own log: one line an event, on standard error, which is the log file."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING

import structlog

from attngate.gpu_runner import paths

if TYPE_CHECKING:
    from pathlib import Path

MAX_DAEMON_LOG = 1024 * 1024
MAX_JOB_LOGS = 200


class _BestEffortStream:
    """Standard error, but a full disk costs the line and nothing else."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


def configure() -> None:
    """Set structlog up for this process."""
    structlog.configure(
        processors=[
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["at", "event"]),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=_BestEffortStream()),  # type: ignore[arg-type]
    )


def logger() -> structlog.typing.FilteringBoundLogger:
    """The daemon's logger."""
    bound: structlog.typing.FilteringBoundLogger = structlog.get_logger()
    return bound


def rotate(path: Path) -> None:
    """Begin a new log file where the old one has grown; one old one is kept."""
    with contextlib.suppress(OSError):
        if path.stat().st_size <= MAX_DAEMON_LOG:
            return
        os.replace(path, f"{path}.1")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)


def prune_job_logs(folder: Path | None = None, max_age_s: float = 14 * 86400.0) -> None:
    """Delete job logs that are old or many; the newest stay."""
    with contextlib.suppress(OSError):
        found = list((folder or paths.log_folder()).glob("job-*.log"))
        newest_first = sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)
        for place, path in enumerate(newest_first):
            if place >= MAX_JOB_LOGS or time.time() - path.stat().st_mtime > max_age_s:
                path.unlink(missing_ok=True)
