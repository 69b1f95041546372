"""Carries jobs out: one thread for each device slot, an executor for each job, evidence at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil

from attngate.gpu_runner import paths
from attngate.gpu_runner.daemon import trees as tree_store
from attngate.gpu_runner.daemon.executors.task import (
    COULD_NOT_CHECK,
    JobCancelledError,
    JobFailedError,
    Task,
)
from attngate.gpu_runner.errors import RunnerError
from attngate.gpu_runner.evidence.key import WORKER_FOLDER, tool_digest
from attngate.gpu_runner.evidence.store import StoreError
from attngate.gpu_runner.protocol import JobState, Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from structlog.typing import FilteringBoundLogger

    from attngate.gpu_runner.daemon.devices import DeviceSlot
    from attngate.gpu_runner.daemon.executors.task import Reporter
    from attngate.gpu_runner.daemon.queue import JobQueue, QueuedJob
    from attngate.gpu_runner.daemon.trees import Trees
    from attngate.gpu_runner.evidence.store import EvidenceStore
    from attngate.gpu_runner.protocol import Facts
    from attngate.gpu_runner.worker.wire import Verdict

MARK = "ATTNGATE_JOB"
_OTHER_SOURCES = "wait until the daemon is idle, or run `attngate daemon stop`, and ask again"


class Supervisor:
    """Runs the jobs of a queue.

    Attributes:
        worker: Folder of the worker's sources, whose digest must be that of a job's key.
    """

    def __init__(
        self,
        queue: JobQueue,
        trees: Trees,
        store: EvidenceStore,
        execute: Callable[[Task, Reporter], Facts],
        log: FilteringBoundLogger,
        worker: Path = WORKER_FOLDER,
    ) -> None:
        """Nothing runs before `start`."""
        self._queue, self._trees, self._store = queue, trees, store
        self._execute, self._log = execute, log
        self.worker = worker
        self._instance = instance_name(psutil.Process())
        self._threads: list[threading.Thread] = []

    def start(self, slots: Iterable[DeviceSlot]) -> None:
        """Start a thread for each slot. They live as long as the process: workers die with them."""
        for slot in slots:
            thread = threading.Thread(target=self._serve, args=(slot,), name=slot.name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def join(self, timeout_s: float) -> None:
        """Wait for the slots to end, after the queue was closed."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _serve(self, slot: DeviceSlot) -> None:
        while (job := self._queue.take(slot.device, slot.name)) is not None:
            self._log.info("job started", job=job.id, slot=slot.name, target=_target(job))
            state, problem, key = self._outcome(job, slot)
            self._trees.release(job.tree)
            self._queue.finish(job, state, problem, key)
            self._log.info(
                "job ended", job=job.id, state=state.value, problem=problem and problem.message
            )

    def _outcome(self, job: QueuedJob, slot: DeviceSlot) -> tuple[JobState, Problem | None, str]:
        folder: Path | None = None
        try:
            folder = Path(tempfile.mkdtemp(prefix=f"{job.id}-", dir=paths.jobs_folder()))
            return JobState.DONE, None, self._run(job, slot, folder)
        except JobCancelledError:
            return JobState.CANCELLED, None, ""
        except JobFailedError as failure:
            return JobState.FAILED, failure.problem, ""
        except (RunnerError, OSError) as error:
            advice = getattr(error, "advice", "")
            problem = Problem(kind=COULD_NOT_CHECK, message=str(error), advice=advice)
            return JobState.FAILED, problem, ""
        except Exception as error:
            self._log.exception("a job failed in the daemon itself", job=job.id)
            problem = Problem(
                kind=COULD_NOT_CHECK,
                message=f"the daemon failed: {type(error).__name__}: {error}",
                advice="this is a bug of attngate; please report it",
                detail=traceback.format_exc(),
            )
            return JobState.FAILED, problem, ""
        finally:
            self._end_escaped(job)
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)

    def _run(self, job: QueuedJob, slot: DeviceSlot, folder: Path) -> str:
        self._require_same_sources(job)
        tree_store.verify(job.tree, job.request.job.manifest)
        recorder = _Recorder(job, self._queue, self._store)
        began = time.monotonic()
        facts = self._execute(self._task(job, slot, folder), recorder)
        self._require_same_sources(job)
        return recorder.complete(facts, time.monotonic() - began)

    def _require_same_sources(self, job: QueuedJob) -> None:
        """The verdict must come from the very worker that the key names."""
        if tool_digest(self.worker) != job.request.key.key.tool:
            raise RunnerError(
                "the worker's sources are not those that this validation was asked of",
                _OTHER_SOURCES,
            )

    def _task(self, job: QueuedJob, slot: DeviceSlot, folder: Path) -> Task:
        scratch = folder / "tmp"
        scratch.mkdir(mode=0o700)
        environment = slot.environment(job.request.environment)
        environment.setdefault("TRITON_CACHE_DIR", _triton_cache(scratch))
        environment["TMPDIR"] = str(scratch)
        environment[MARK] = f"{self._instance}/{job.id}"
        return Task(
            job=replace(job.request.job, id=job.id, tree_root=str(job.tree)),
            interpreter=job.request.interpreter,
            environment=environment,
            folder=folder,
            log=Path(job.log),
            entry=self.worker / "__main__.py",
        )

    def _end_escaped(self, job: QueuedJob) -> None:
        """Kill what a job's processes started in sessions of their own."""
        count = kill_marked(lambda mark: mark == f"{self._instance}/{job.id}")
        if count:
            self._log.warning("killed processes that a job left", job=job.id, count=count)


class _Recorder:
    """Takes an executor's reports: to the evidence store first, then to the clients.

    Only the whole plan under the default inputs on the required device is evidence. What else is run
    is reported and not kept.
    """

    def __init__(self, job: QueuedJob, queue: JobQueue, store: EvidenceStore) -> None:
        self._job, self._queue, self._store = job, queue, store
        told = job.request.job
        self._keeps = not told.only and told.seed == 0 and told.device == told.target.requires
        self._run: int | None = None
        self._planned: tuple[str, ...] = ()
        self._seen: set[str] = set()
        self._loss = ""

    def planned(self, facts: Facts) -> None:
        """Begin a run."""
        self._planned = facts.planned
        if self._keeps:
            with self._noting_loss():
                target = self._job.request.job.target.name
                self._run = self._store.begin(self._job.request.key, target, facts.planned)
        self._queue.note_plan(self._job, facts)

    def verdict(self, verdict: Verdict) -> None:
        """Add a verdict; raises ValueError for a case that was not planned, or twice."""
        if verdict.case not in self._planned or verdict.case in self._seen:
            raise ValueError(f"a verdict for {verdict.case!r} was not expected")
        self._seen.add(verdict.case)
        if self._run is not None:
            with self._noting_loss():
                self._store.record(self._run, verdict)
        self._queue.note_verdict(self._job, verdict)

    def is_cancelled(self) -> bool:
        """True once the job is to end."""
        return self._job.cancelled.is_set()

    def complete(self, facts: Facts, seconds: float) -> str:
        """Close the run; returns the digest that it counts for, "" where it is not kept."""
        if self._seen != set(self._planned) or facts.planned != self._planned:
            raise ValueError("the executor ended without a verdict for every planned case")
        key = ""
        if self._run is not None:
            with self._noting_loss():
                key = self._store.complete(self._run, facts, seconds)
        if self._loss:
            text = f"the verdicts could not be kept: {self._loss}"
            facts = msgspec.structs.replace(facts, disclosures=(*facts.disclosures, text))
        self._queue.note_plan(self._job, facts)
        return key

    @contextlib.contextmanager
    def _noting_loss(self) -> Iterator[None]:
        """A store that fails costs the evidence, not the job."""
        try:
            yield
        except StoreError as error:
            self._run, self._loss = None, error.message


def instance_name(process: psutil.Process) -> str:
    """A process by number and start time: numbers are used again."""
    return f"{process.pid}-{process.create_time():.2f}"


def is_running(instance: str) -> bool:
    """True if the process of that `instance_name` is still there."""
    with contextlib.suppress(ValueError, psutil.Error):
        return instance_name(psutil.Process(int(instance.partition("-")[0]))) == instance
    return False


def kill_orphans() -> int:
    """Kill processes of jobs whose daemon is gone; returns how many."""
    return kill_marked(lambda mark: not is_running(mark.partition("/")[0]))


def kill_marked(chosen: Callable[[str], bool]) -> int:
    """Kill this user's processes that carry a job's mark, where `chosen` says so of the mark."""
    count = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.uids().real != os.getuid():
                continue
            mark = process.environ().get(MARK)
            if mark is not None and chosen(mark):
                process.kill()
                count += 1
    return count


def _target(job: QueuedJob) -> str:
    return job.request.job.target.name


def _triton_cache(scratch: Path) -> str:
    """Compiled kernels outlive a job where the cache folder can be used."""
    try:
        folder = paths.private_folder(paths.private_folder(paths.cache_location()) / "triton")
    except RunnerError:
        folder = scratch
    return str(folder if os.access(folder, os.W_OK | os.X_OK) else scratch)
