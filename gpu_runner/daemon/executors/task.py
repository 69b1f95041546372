"""What an executor is given, what it reports, and how it fails.

An executor is a function `execute(task, reporter) -> Facts`. It reports the plan once, then a verdict
for every planned case, each once. When it cannot, it raises; what was reported until then establishes
nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from attngate.gpu_runner.protocol import Facts, Problem
    from attngate.gpu_runner.worker.wire import Job, Verdict

COULD_NOT_CHECK = "could_not_check"


@dataclass(frozen=True)
class Task:
    """One job, ready to be carried out.

    Attributes:
        job: What the workers are told; `tree_root` is the tree that the daemon owns.
        interpreter: Python that runs the workers.
        environment: The workers' whole environment.
        folder: Private, empty folder for what judge and candidate exchange.
        log: File that takes the workers' output.
        entry: The worker's `__main__.py`.
    """

    job: Job
    interpreter: str
    environment: dict[str, str]
    folder: Path
    log: Path
    entry: Path


class Reporter(Protocol):
    """Where an executor says what it does."""

    def planned(self, facts: Facts) -> None:
        """The cases are known. Raises what ends the job if they cannot be noted."""

    def verdict(self, verdict: Verdict) -> None:
        """A case is finished."""

    def is_cancelled(self) -> bool:
        """True once the job is to end; asked at least every tenth of a second."""


Executor = "Callable[[Task, Reporter], Facts]"


class JobFailedError(Exception):
    """The job could not be carried out, and the callable is not at fault."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class JobCancelledError(Exception):
    """The job was cancelled."""
