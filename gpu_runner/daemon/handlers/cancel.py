"""Cancel: end jobs that nobody wants any more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from attngate.gpu_runner.protocol import Reports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.gpu_runner.daemon.server import Server, Session
    from attngate.gpu_runner.protocol import Cancel, Reply

_SETTLE_S = 3.0


def handle(server: Server, session: Session, request: Cancel) -> Iterator[Reply]:
    """Cancel each job, and give running ones a moment to be gone."""
    only_for = session.token if request.only_mine else ""
    asked = set()
    for job_id in request.ids:
        was_waiting, is_cancelled = server.queue.cancel(job_id, only_for)
        if was_waiting is not None:
            server.trees.release(was_waiting.tree)
        if is_cancelled:
            asked.add(job_id)
            server.log.info("job cancelled", job=job_id, client=session.name)
    deadline = time.monotonic() + _SETTLE_S
    while True:
        revision = server.queue.revision
        reports = tuple(server.queue.reports(request.ids))
        pending = [r for r in reports if r.id in asked and not r.state.is_final]
        remaining = deadline - time.monotonic()
        if not pending or remaining <= 0:
            yield Reports(reports=reports)
            return
        server.queue.wait_for_change(revision, remaining)
