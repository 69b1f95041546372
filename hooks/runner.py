"""The command line's side of the validation daemon: connecting, and telling jobs in a line each."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from attngate.gpu_runner.client import Client
from attngate.gpu_runner.errors import RunnerError
from attngate.gpu_runner.protocol import JobState
from attngate.hooks.errors import (
    EXIT_COULD_NOT_CHECK,
    EXIT_FINDINGS,
    EXIT_PASS,
    CouldNotCheckError,
    UsageError,
    worst,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from attngate.gpu_runner.protocol import JobReport


@contextlib.contextmanager
def runner_errors() -> Iterator[None]:
    """Turn what goes wrong with the daemon into "could not check" (exit 4)."""
    try:
        yield
    except RunnerError as error:
        raise CouldNotCheckError(error.message, error.advice) from error


@contextlib.contextmanager
def connected(*, auto_start: bool = True, name: str = "") -> Iterator[Client]:
    """A connection to the daemon, whose errors are `CouldNotCheckError`."""
    with runner_errors(), Client.connect(auto_start=auto_start, name=name) as client:
        yield client


def require_known(reports: Iterable[JobReport]) -> None:
    """Raise UsageError for a job that the daemon does not know."""
    for report in reports:
        if report.state is JobState.UNKNOWN:
            raise UsageError(
                f"the daemon has no job {report.id!r}",
                "see `attngate daemon status`; jobs are forgotten when the daemon ends",
            )


def exit_code(reports: Sequence[JobReport]) -> int:
    """0 if every job passed, 1 if a case failed, 4 for anything unfinished or neither."""
    return worst([_code(report) for report in reports])


def line_of(report: JobReport) -> str:
    """A job in one line: id, state, progress, target, who asked."""
    done, planned = len(report.verdicts), len(report.facts.planned)
    cells = [f"{report.id:<9}", f"{_state(report):<16}", f"{done}/{planned or '?'} cases"]
    failed = sum(verdict.kind.is_failure for verdict in report.verdicts)
    if failed:
        cells.append(f"{failed} failed")
    where = f"{report.target} ({report.suite}, {report.tier}, {report.device})"
    cells.append(where)
    if report.subject:
        cells.append(report.subject)
    cells.append(f"{_duration(report.seconds or report.age)}, {', '.join(report.clients)}")
    return "  ".join(cells)


def problem_lines(report: JobReport) -> list[str]:
    """Why a job failed, indented; nothing for others."""
    if report.problem is None:
        return []
    lines = [report.problem.message, report.problem.advice]
    return [f"    {line}" for line in lines if line]


def _state(report: JobReport) -> str:
    if report.state is JobState.QUEUED:
        return f"queued ({report.position} before)"
    if report.state is JobState.DONE:
        return "passed" if report.passed else "done, no pass"
    return "could not check" if report.state is JobState.FAILED else report.state.value


def _code(report: JobReport) -> int:
    if report.passed:
        return EXIT_PASS
    failed = any(verdict.kind.is_failure for verdict in report.verdicts)
    return EXIT_FINDINGS if failed else EXIT_COULD_NOT_CHECK


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
