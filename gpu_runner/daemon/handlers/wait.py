"""Wait: follow jobs until they are final."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from attngate.gpu_runner.protocol import Progress, Reports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.gpu_runner.daemon.server import Server, Session
    from attngate.gpu_runner.protocol import JobReport, Reply, Wait

_SLICE_S = 0.1
_HEARTBEAT_S = 5.0


def handle(server: Server, session: Session, request: Wait) -> Iterator[Reply]:
    """Send progress when something changed, and now and then; then the reports.

    A client that leaves, or that says something else meanwhile, is waited for no longer. Its jobs go
    on.
    """
    deadline = time.monotonic() + request.timeout_s
    shown: tuple[object, ...] = ()
    shown_at = 0.0
    while True:
        revision = server.queue.revision
        reports = tuple(server.queue.reports(request.ids))
        now = time.monotonic()
        is_over = all(report.state.is_final for report in reports) or now >= deadline
        if is_over or session.channel.has_input():
            yield Reports(reports=reports)
            return
        if _essence(reports) != shown or now - shown_at > _HEARTBEAT_S:
            shown, shown_at = _essence(reports), now
            yield Progress(reports=reports)
        server.queue.wait_for_change(revision, min(_SLICE_S, deadline - now))


def _essence(reports: tuple[JobReport, ...]) -> tuple[object, ...]:
    """What a watching user would see change."""
    return tuple((r.state, r.position, len(r.verdicts), len(r.facts.planned)) for r in reports)
