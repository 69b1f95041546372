"""The jobs: waiting, running and finished, and who asked for them."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from attngate.gpu_runner.protocol import Facts, JobReport, JobState
from attngate.gpu_runner.spawn import results_environment

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from attngate.gpu_runner.protocol import JobId, JobRequest, Problem
    from attngate.gpu_runner.worker.wire import Verdict

MAX_FINISHED = 200


@dataclass
class QueuedJob:
    """One job and everything that is known of it; changed under the queue's lock only."""

    id: JobId
    request: JobRequest
    tree: Path
    log: str
    submitted_at: float = field(default_factory=time.monotonic)
    state: JobState = JobState.QUEUED
    submitters: dict[str, str] = field(default_factory=dict)
    slot: str = ""
    started_at: float = 0.0
    ended_at: float = 0.0
    verdicts: list[Verdict] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    problem: Problem | None = None
    stored_key: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)

    def seconds(self, now: float) -> float:
        """How long it has been, or was, running."""
        return (self.ended_at or now) - self.started_at if self.started_at else 0.0


class JobQueue:
    """All jobs of one daemon; safe to use from several threads.

    Attributes:
        changed: Notified whenever anything about any job changes.
        revision: Grows with each change.
    """

    def __init__(self) -> None:
        """An empty queue."""
        self.changed = threading.Condition()
        self.revision = 0
        self._jobs: dict[JobId, QueuedJob] = {}
        self._prefix = secrets.token_hex(2)
        self._serial = 0
        self._closed = False

    def join_same(self, request: JobRequest, token: str, client: str) -> JobId | None:
        """Count a client among those that asked for a job under way for exactly the same thing."""
        identity = identity_of(request)
        with self.changed:
            for job in self._jobs.values():
                is_open = not job.state.is_final and not job.cancelled.is_set()
                if is_open and identity_of(job.request) == identity:
                    job.submitters[token] = client
                    self._note_change()
                    return job.id
        return None

    def new_id(self) -> JobId:
        """An id that no other job of any daemon's life is likely to have."""
        with self.changed:
            self._serial += 1
            return f"{self._prefix}-{self._serial}"

    def add(self, job: QueuedJob) -> None:
        """Put a job at the end of the queue."""
        with self.changed:
            self._jobs[job.id] = job
            self._forget_old()
            self._note_change()

    def take(self, device: str, slot: str) -> QueuedJob | None:
        """Wait for the next job for a device and mark it running; None once the queue is closed."""
        with self.changed:
            while not self._closed:
                for job in self._jobs.values():
                    if job.state is JobState.QUEUED and job.request.job.device == device:
                        job.state, job.slot = JobState.RUNNING, slot
                        job.started_at = time.monotonic()
                        self._note_change()
                        return job
                self.changed.wait()
        return None

    def note_plan(self, job: QueuedJob, facts: Facts) -> None:
        """Add what is known of a running job."""
        with self.changed:
            job.facts = facts
            self._note_change()

    def note_verdict(self, job: QueuedJob, verdict: Verdict) -> None:
        """Add the verdict of one case."""
        with self.changed:
            job.verdicts.append(verdict)
            self._note_change()

    def finish(
        self,
        job: QueuedJob,
        state: JobState,
        problem: Problem | None = None,
        stored_key: str = "",
    ) -> None:
        """Give a job its final state, and the key that its verdicts are kept under."""
        with self.changed:
            if not job.state.is_final:
                job.stored_key = stored_key
                job.state, job.problem, job.ended_at = state, problem, time.monotonic()
                self._note_change()

    def cancel(self, job_id: JobId, only_for: str = "") -> tuple[QueuedJob | None, bool]:
        """Cancel a job; with `only_for`, only if no other client than that token's asked for it.

        Returns:
            The job if it had been waiting (it will not run, and its tree is to be released), else
            None; and whether it was cancelled at all. A running one ends soon.
        """
        with self.changed:
            job = self._jobs.get(job_id)
            if job is None or job.state.is_final:
                return None, False
            if only_for and set(job.submitters) != {only_for}:
                return None, False
            job.cancelled.set()
            was_waiting = job.state is JobState.QUEUED
            if was_waiting:
                job.state, job.ended_at = JobState.CANCELLED, time.monotonic()
            self._note_change()
            return (job if was_waiting else None), True

    def close(self) -> list[QueuedJob]:
        """Cancel everything and let the slots end; returns the jobs that had been waiting."""
        with self.changed:
            self._closed = True
            waiting = [self.cancel(job_id)[0] for job_id in list(self._jobs)]
            self.changed.notify_all()
            return [job for job in waiting if job is not None]

    def active(self) -> int:
        """How many jobs are waiting or running."""
        with self.changed:
            return sum(not job.state.is_final for job in self._jobs.values())

    def running(self) -> dict[str, JobId]:
        """Slot name to the job in it."""
        with self.changed:
            return {j.slot: j.id for j in self._jobs.values() if j.state is JobState.RUNNING}

    def reports(self, ids: Iterable[JobId] | None = None) -> list[JobReport]:
        """Reports of these jobs in this order, or of all jobs, oldest first."""
        with self.changed:
            now = time.monotonic()
            chosen = list(self._jobs) if ids is None else list(ids)
            return [self._report(job_id, now) for job_id in chosen]

    def wait_for_change(self, revision: int, timeout_s: float) -> int:
        """Wait until something changed since `revision`, at most so long; returns the new one."""
        with self.changed:
            self.changed.wait_for(lambda: self.revision != revision, timeout_s)
            return self.revision

    def _report(self, job_id: JobId, now: float) -> JobReport:
        job = self._jobs.get(job_id)
        if job is None:
            return JobReport(id=job_id, state=JobState.UNKNOWN)
        told = job.request.job
        return JobReport(
            id=job.id,
            state=job.state,
            target=told.target.name,
            suite=told.target.suite,
            tier=told.tier,
            subject=job.request.subject,
            tree=told.tree,
            device=told.device,
            clients=tuple(job.submitters.values()),
            position=self._position(job),
            age=now - job.submitted_at,
            seconds=job.seconds(now),
            verdicts=tuple(job.verdicts),
            facts=job.facts,
            problem=job.problem,
            key=job.stored_key,
            log=job.log,
        )

    def _position(self, job: QueuedJob) -> int:
        if job.state is not JobState.QUEUED:
            return 0
        before = 0
        for other in self._jobs.values():
            if other is job:
                break
            same_device = other.request.job.device == job.request.job.device
            before += same_device and not other.state.is_final
        return before

    def _forget_old(self) -> None:
        finished = [job_id for job_id, job in self._jobs.items() if job.state.is_final]
        for job_id in finished[:-MAX_FINISHED]:
            del self._jobs[job_id]

    def _note_change(self) -> None:
        self.revision += 1
        self.changed.notify_all()


def identity_of(request: JobRequest) -> tuple[object, ...]:
    """What two requests must have in common to be one job.

    The whole tree is part of it: if the candidate reaches beyond the closure, the verdicts count for
    that tree only.
    """
    job = request.job
    variables = tuple(sorted(results_environment(request.environment).items()))
    limits = (job.case_timeout_s, job.job_timeout_s)
    return (request.key, request.interpreter, variables, job.device, job.only, job.seed, limits)
