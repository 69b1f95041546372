"""Status: what the daemon is and is doing. Answers at once, whatever runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from attngate.gpu_runner import paths
from attngate.gpu_runner.protocol import Facts, Slot, StatusReply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.gpu_runner.daemon.server import Server, Session
    from attngate.gpu_runner.protocol import JobReport, Reply, Status

_SHOWN = 20


def handle(server: Server, session: Session, request: Status) -> Iterator[Reply]:
    """The slots, the open jobs and the last finished ones."""
    del session, request
    about = server.welcome()
    running = server.queue.running()
    reports = [_short(report) for report in server.queue.reports()]
    yield StatusReply(
        protocol=about.protocol,
        version=about.version,
        code=about.code,
        interpreter=about.interpreter,
        pid=about.pid,
        started_at=about.started_at,
        clients=server.clients(),
        slots=tuple(
            Slot(name=slot.name, device=slot.device, job=running.get(slot.name, ""))
            for slot in server.slots
        ),
        jobs=tuple(report for report in reports if not report.state.is_final),
        finished=tuple(report for report in reports if report.state.is_final)[-_SHOWN:],
        idle_exit_s=server.idle_exit_s,
        ending=bool(server.ending),
        log=str(paths.daemon_log()),
        evidence=server.store.name,
    )


def _short(report: JobReport) -> JobReport:
    """A report without what only a reader of the verdicts needs."""
    facts = Facts(planned=report.facts.planned, device=report.facts.device)
    verdicts = tuple(
        replace(verdict, measurements=verdict.measurements[:1], detail="")
        for verdict in report.verdicts
    )
    return msgspec.structs.replace(report, facts=facts, verdicts=verdicts)
