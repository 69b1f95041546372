"""Submit: check requests, take their trees over, and queue them or join what is under way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attngate.gpu_runner import paths
from attngate.gpu_runner.daemon.queue import QueuedJob
from attngate.gpu_runner.errors import RunnerError
from attngate.gpu_runner.evidence.key import KEY_VERSION, declaration_digest, tool_digest
from attngate.gpu_runner.protocol import Accepted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.gpu_runner.daemon.server import Server, Session
    from attngate.gpu_runner.protocol import JobId, JobRequest, Reply, Submit


def handle(server: Server, session: Session, request: Submit) -> Iterator[Reply]:
    """Queue all of the jobs, or none of them."""
    if server.ending in ("now", "drained"):
        raise RunnerError("the daemon is ending", "ask again in a moment")
    worker = server.supervisor.worker
    tool = tool_digest(worker)
    for job in request.jobs:
        _require_sound(job, tool)
    trees = _adopt_all(server, request)
    with server.queue.changed:  # nobody may queue the same job between the look and the entry
        ids = [
            _queue(server, session, job, tree)
            for job, tree in zip(request.jobs, trees, strict=True)
        ]
    yield Accepted(ids=tuple(ids))


def _require_sound(request: JobRequest, tool: str) -> None:
    """A key must be the key of this very job, or its verdicts would count for something else."""
    key, job = request.key.key, request.job
    if key.version != KEY_VERSION or key.tool != tool:
        raise RunnerError(
            "the running daemon has other worker sources than this attngate",
            "wait until it is idle, or run `attngate daemon stop`, and ask again",
        )
    expected = {
        "suite": job.target.suite,
        "tier": job.tier,
        "contract": job.contract,
        "declaration": declaration_digest(job.target),
    }
    wrong = [name for name, value in expected.items() if getattr(key, name) != value]
    if wrong:
        raise RunnerError(
            f"the key of target {job.target.name} has another {wrong[0]} than its job"
        )
    if job.device not in ("cpu", "cuda"):
        raise RunnerError(f"target {job.target.name} asks for the unknown device {job.device!r}")
    if not Path(request.interpreter).is_absolute():
        raise RunnerError(f"the interpreter {request.interpreter!r} is not an absolute path")


def _adopt_all(server: Server, request: Submit) -> list[Path]:
    adopted: list[Path] = []
    try:
        for job in request.jobs:
            adopted.append(server.trees.adopt(job.job.tree_root))  # noqa: PERF401 - undone below
    except BaseException:
        for tree in adopted:
            server.trees.release(tree)
        raise
    return adopted


def _queue(server: Server, session: Session, request: JobRequest, tree: Path) -> JobId:
    joined = server.queue.join_same(request, session.token, session.name)
    if joined is not None:
        server.trees.release(tree)
        return joined
    job_id = server.queue.new_id()
    job = QueuedJob(
        id=job_id,
        request=request,
        tree=tree,
        log=str(paths.job_log(job_id)),
        submitters={session.token: session.name},
    )
    server.queue.add(job)
    server.log.info("job queued", job=job_id, client=session.name, target=request.job.target.name)
    return job_id
