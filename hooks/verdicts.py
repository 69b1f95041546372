"""Numerical verdicts for the targets of a tree: looked up, submitted, waited for, and told.

A verdict that the daemon holds for exactly the target's key is used again. What the change can
affect and nobody has judged yet is handed to the daemon; what it cannot affect is listed, never run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from attngate.gpu_runner import paths, spawn
from attngate.gpu_runner.protocol import JobRequest, JobState
from attngate.gpu_runner.worker.wire import VerdictKind
from attngate.hooks.errors import CouldNotCheckError
from attngate.hooks.export import write_files
from attngate.hooks.report import Policy, TargetReport, TargetState, Unavailable
from attngate.hooks.runner import connected, runner_errors
from attngate.hooks.terminal import ProgressLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from attngate.gpu_runner.client import Client
    from attngate.gpu_runner.protocol import Facts, JobEvidence, JobReport
    from attngate.gpu_runner.worker.wire import Verdict
    from attngate.hooks.targets import PlannedTarget, TreePlan

NOT_READY = "verdict not ready: the validation goes on; push again when it is done"
_SEE_QUEUE = "`attngate daemon status` shows the queue, `attngate push` waits first"
_LONG_S = 24 * 3600
# Neither pass nor fail, and not the callable's own refusal: the case was not judged.
_NOT_JUDGED = frozenset({VerdictKind.NOT_RUNNABLE, VerdictKind.CANCELLED})


@dataclass(frozen=True, slots=True)
class Wish:
    """How verdicts are obtained.

    Attributes:
        env: The caller's environment; workers get the part that concerns them.
        wait_s: Seconds to wait for what is under way; 0 looks up and submits only.
        policy: Whether a verdict that cannot be had blocks.
        fresh: True to run what is already known too.
    """

    env: Mapping[str, str]
    wait_s: float
    policy: Policy = Policy.REFUSE
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Obtained:
    """What is known about the targets of one tree.

    Attributes:
        targets: One for each planned target, in order.
        unavailable: What was asked for and could not be had.
        disclosures: What the daemon wants the user to know.
    """

    targets: tuple[TargetReport, ...]
    unavailable: tuple[Unavailable, ...] = ()
    disclosures: tuple[str, ...] = ()


@dataclass(slots=True)
class _Round:
    """One tree's targets on their way through lookup, submission and waiting."""

    plan: TreePlan
    wish: Wish
    reports: dict[str, TargetReport] = field(default_factory=dict)

    def open_targets(self) -> list[PlannedTarget]:
        return [t for t in self.plan.targets if t.settings.name not in self.reports]

    def obtained(self, warnings: Iterable[str]) -> Obtained:
        ordered = tuple(self.reports[target.settings.name] for target in self.plan.targets)
        missing = tuple(
            Unavailable(f"target {t.name}", t.reason, _advice(t), self.wish.policy)
            for t in ordered
            if t.affected and t.state in (TargetState.RUNNING, TargetState.COULD_NOT_CHECK)
        )
        return Obtained(ordered, missing, (*self.plan.disclosures, *warnings))


def obtain(plan: TreePlan, wish: Wish) -> Obtained:
    """Look verdicts up, have the missing ones of affected targets made, and wait for them.

    Args:
        plan: The targets.
        wish: How.

    Returns:
        A report for every target. Where the daemon cannot be reached, or the tree cannot be handed
        over, each affected target says so.
    """
    turn = _Round(plan, wish)
    for target in plan.targets:
        if target.problem:
            turn.reports[target.settings.name] = _broken(target)
    if not turn.open_targets():
        return turn.obtained(())
    try:
        with connected() as client:
            _look_up(turn, client)
            jobs = _submit(turn, client)
            if jobs:
                _wait(turn, client, jobs)
            return turn.obtained(client.warnings)
    except CouldNotCheckError as error:
        why = _told(error.message, error.advice)
        for target in turn.open_targets():
            state = TargetState.COULD_NOT_CHECK if target.affected else TargetState.UNTESTED
            turn.reports[target.settings.name] = _report(target, state, why)
        return turn.obtained(())


def hand_over(plan: TreePlan, env: Mapping[str, str]) -> list[str]:
    """Have the missing verdicts of affected targets made, and wait for nothing.

    Returns:
        Ids of the jobs.

    Raises:
        CouldNotCheckError: No daemon, or no room for the tree.
    """
    turn = _Round(plan, Wish(env, 0.0))
    for target in plan.targets:
        if target.problem:
            turn.reports[target.settings.name] = _broken(target)
    with connected() as client:
        _look_up(turn, client)
        return list(_submit(turn, client))


def _look_up(turn: _Round, client: Client) -> None:
    targets = turn.open_targets()
    for target, evidence in zip(targets, client.lookup([t.key for t in targets]), strict=True):
        if evidence is not None and not _is_to_be_repeated(turn, target, evidence):
            turn.reports[target.settings.name] = _known(target, evidence)
        elif not target.affected:
            why = "not affected by this change, and no verdict is known for its files"
            turn.reports[target.settings.name] = _report(target, TargetState.UNTESTED, why)


def _is_to_be_repeated(turn: _Round, target: PlannedTarget, evidence: JobEvidence) -> bool:
    return target.affected and (turn.wish.fresh or evidence.worth_repeating)


def _submit(turn: _Round, client: Client) -> dict[str, PlannedTarget]:
    """Hand the tree and the open targets over; job id to target."""
    targets = turn.open_targets()
    if not targets:
        return {}
    folder = _exported(turn.plan)
    environment = spawn.worker_environment(turn.wish.env)
    requests = [
        JobRequest(
            job=replace(target.job, tree_root=folder),
            interpreter=turn.plan.interpreter,
            key=target.key,
            environment=environment,
            subject=turn.plan.subject.subject,
        )
        for target in targets
    ]
    return dict(zip(client.submit(requests), targets, strict=True))


def _exported(plan: TreePlan) -> str:
    """Write what the jobs need into a folder that the daemon takes over."""
    with runner_errors():
        parent = str(paths.trees_folder())
    folder = tempfile.mkdtemp(prefix=f"{plan.subject.tree[:12]}-", dir=parent)
    write_files(plan.subject, folder, plan.is_exported)
    return folder


def _wait(turn: _Round, client: Client, jobs: dict[str, PlannedTarget]) -> None:
    ids = list(jobs)
    line = ProgressLine(sys.stderr)
    deadline = time.monotonic() + turn.wish.wait_s
    try:
        reports = client.wait(ids, turn.wish.wait_s, lambda r: line.show(_progress(r, deadline)))
    except KeyboardInterrupt:
        # Nobody is left who wants these results, unless another client asked for them too.
        client.cancel(ids, only_mine=True)
        raise
    finally:
        line.close()
    for report in reports:
        target = jobs[report.id]
        turn.reports[target.settings.name] = _judged(target, report)


def _progress(reports: Sequence[JobReport], deadline: float) -> str:
    done = sum(len(report.verdicts) for report in reports)
    planned = sum(len(report.facts.planned) for report in reports)
    ready = sum(report.state.is_final for report in reports)
    ahead = max((r.position for r in reports if r.state is JobState.QUEUED), default=0)
    queue = f", {ahead} jobs ahead" if ahead else ""
    left = max(0, round(deadline - time.monotonic()))
    limit = f"; waiting {left} s at most" if left < _LONG_S else ""
    return (
        f"attngate: {ready} of {len(reports)} targets judged, {done} of {planned or '?'} cases"
        f"{queue}{limit}"
    )


def _known(target: PlannedTarget, evidence: JobEvidence) -> TargetReport:
    when = datetime.fromtimestamp(evidence.recorded_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    state, why = _state_of(evidence.verdicts, evidence.facts)
    if state is TargetState.PASSED:
        state = TargetState.REUSED
    about = f"judged {when} with the same files, settings and environment"
    if not target.affected:
        about = f"not affected by this change; {about}"
    return _report(
        target,
        state,
        f"{why}; {about}" if why else about,
        facts=evidence.facts,
        verdicts=evidence.verdicts,
        seconds=evidence.seconds,
    )


def _judged(target: PlannedTarget, report: JobReport) -> TargetReport:
    if report.state is JobState.DONE:
        state, why = _state_of(report.verdicts, report.facts)
    elif report.state is JobState.FAILED:
        state, why = _state_of_failed(report)
    elif report.state.is_final:
        state, why = TargetState.COULD_NOT_CHECK, f"job {report.id} is {report.state.value}"
    else:
        state, why = TargetState.RUNNING, NOT_READY
    return _report(
        target,
        state,
        why,
        facts=report.facts,
        verdicts=report.verdicts,
        seconds=report.seconds,
        job=report.id,
        log=report.log,
    )


def _state_of(verdicts: Sequence[Verdict], facts: Facts) -> tuple[TargetState, str]:
    """What the verdicts of a finished run come to, and why where it is no pass."""
    counts = Counter(verdict.kind for verdict in verdicts)
    failed = sum(count for kind, count in counts.items() if kind.is_failure)
    if failed:
        return TargetState.FAILED, f"{failed} of {len(verdicts)} cases failed"
    judged = {verdict.case for verdict in verdicts}
    if not facts.planned or not judged.issuperset(facts.planned):
        return TargetState.COULD_NOT_CHECK, "not every planned case has a verdict"
    first = next((v for v in verdicts if v.kind in _NOT_JUDGED), None)
    if first is not None:
        skipped = sum(counts[kind] for kind in _NOT_JUDGED)
        why = _told(first.message, first.advice)
        told = f"{skipped} of {len(verdicts)} cases could not be run here: {why}"
        return TargetState.COULD_NOT_CHECK, told
    if not counts[VerdictKind.PASSED]:
        why = _told(verdicts[0].message, verdicts[0].advice) if verdicts else "no case was run"
        return TargetState.COULD_NOT_CHECK, f"no case could be judged: {why}"
    return TargetState.PASSED, ""


def _state_of_failed(report: JobReport) -> tuple[TargetState, str]:
    problem = report.problem
    if any(verdict.kind.is_failure for verdict in report.verdicts):
        return TargetState.FAILED, "a case failed before the job could not go on"
    if problem is None:
        return TargetState.COULD_NOT_CHECK, "the job could not be carried out"
    return TargetState.COULD_NOT_CHECK, _told(problem.message, problem.advice)


def _told(message: str, advice: str) -> str:
    return f"{message}. {advice}" if advice else message


def _broken(target: PlannedTarget) -> TargetReport:
    if not target.affected:
        return _report(
            target, TargetState.UNTESTED, f"not affected by this change; {target.problem}"
        )
    return _report(target, TargetState.FAILED, target.problem)


def _report(
    target: PlannedTarget,
    state: TargetState,
    reason: str,
    *,
    facts: Facts | None = None,
    verdicts: tuple[Verdict, ...] = (),
    seconds: float = 0.0,
    job: str = "",
    log: str = "",
) -> TargetReport:
    return TargetReport(
        name=target.settings.name,
        callable=target.settings.callable,
        suite=target.settings.suite,
        device=target.job.device,
        tier=target.job.tier,
        requires=target.settings.requires,
        state=state,
        reason=reason,
        affected=target.affected,
        closure=len(target.job.closure),
        verdicts=verdicts,
        left_out=facts.left_out if facts else (),
        widened=bool(facts and facts.scope != "closure"),
        mixed=facts.mixed if facts else (),
        disclosures=facts.disclosures if facts else (),
        job=job,
        seconds=seconds,
        log=log if log and os.path.exists(log) else "",
    )


def _advice(target: TargetReport) -> str:
    return _SEE_QUEUE if target.state is TargetState.RUNNING else ""
