"""Stop: end the daemon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from attngate.gpu_runner.errors import RunnerError
from attngate.gpu_runner.protocol import Stopping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.gpu_runner.daemon.server import Server, Session
    from attngate.gpu_runner.protocol import Reply, Stop


def handle(server: Server, session: Session, request: Stop) -> Iterator[Reply]:
    """Remove the socket, then answer: who hears the answer can start another daemon."""
    if request.when not in ("now", "drained", "idle"):
        raise RunnerError(f"a daemon cannot be stopped {request.when!r}", "now, drained or idle")
    jobs = server.queue.active()
    stops = request.when != "idle" or jobs == 0
    if stops:
        server.log.info("asked to stop", when=request.when, client=session.name, jobs=jobs)
        server.end("now" if request.when == "idle" else request.when)
    yield Stopping(stopping=stops, pid=os.getpid(), jobs=jobs)
