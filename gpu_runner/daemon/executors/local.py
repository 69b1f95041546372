"""Runs a job on this machine with two fresh processes: the judge and the candidate.

The two never talk to each other. This is the relay between them, and the only one with deadlines. A
candidate that dies, hangs or talks nonsense costs its case and is replaced; a judge that does is our
own failure and ends the job.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from attngate.gpu_runner.daemon.executors import replies
from attngate.gpu_runner.daemon.executors.pipe import (
    DeadlinePassedError,
    MalformedFrameError,
    PeerEndedError,
)
from attngate.gpu_runner.daemon.executors.task import COULD_NOT_CHECK, JobFailedError
from attngate.gpu_runner.daemon.executors.workers import CappedLog, Worker
from attngate.gpu_runner.errors import ProgramMissingError
from attngate.gpu_runner.protocol import Facts, Problem
from attngate.gpu_runner.worker.wire import Verdict, VerdictKind

if TYPE_CHECKING:
    from attngate.gpu_runner.daemon.executors.task import Reporter, Task

START_S = 240.0  # importing torch and a plugin on a busy machine
JUDGE_S = 600.0
MAX_RESTARTS = 3
_T = TypeVar("_T", bound=msgspec.Struct)


def execute(task: Task, reporter: Reporter) -> Facts:
    """Carry out one job.

    Args:
        task: The job.
        reporter: Is told the plan, then one verdict for each planned case.

    Returns:
        What was established besides the verdicts.

    Raises:
        JobFailedError: The judge or the interpreter failed, or there is nothing to run.
        JobCancelledError: `reporter.is_cancelled` became true.
    """
    log = CappedLog(task.log)
    run = _Run(task, reporter, log)
    try:
        run.carry_out()
    except JobFailedError as failure:
        log.note(f"could not check: {failure.problem.message}")
        raise
    finally:
        run.end()
        log.close()
    return run.facts


class _Candidate:
    """The current candidate: a process and what its load came to."""

    def __init__(self, run: _Run) -> None:
        self._worker = run.start("candidate")
        self.refused: replies.Refusal | None = None
        self.loaded: replies.Loaded | None = None

    def load(self, run: _Run) -> None:
        """Import the target; raises `_Died` when the process does not survive that."""
        request = {"op": "load", "job": run.task.job.to_json(), "folder": str(run.task.folder)}
        reply, _ = self.ask(request, run.bounded(START_S), replies.Loaded)
        if isinstance(reply, replies.Refusal):
            _require_not_internal(reply, "the candidate")
            self.refused = reply
        else:
            self.loaded = reply
            run.note_origins(reply)

    def ask(
        self, request: dict[str, Any], timeout_s: float, kind: type[_T]
    ) -> tuple[_T | replies.Refusal, dict[str, Any]]:
        """The answer, checked and raw; raises `_Died` with the verdict that its lack means."""
        began = time.monotonic()
        try:
            raw = self._worker.ask(request, timeout_s)
            return replies.read(raw, kind), raw
        except DeadlinePassedError:
            self.end()
            message = f"{request['op']} did not finish within {timeout_s:.0f} s; it was killed"
            raise _Died(VerdictKind.TIMED_OUT, message, time.monotonic() - began) from None
        except PeerEndedError:
            how = self._worker.end(wait_s=1.0) or "its frames closed"
            message = f"the process died during {request['op']}: {how}"
            raise _Died(VerdictKind.CRASHED, message, time.monotonic() - began) from None
        except MalformedFrameError as error:
            self.end()
            message = f"the process broke its channel during {request['op']}: {error}"
            raise _Died(VerdictKind.CRASHED, message, time.monotonic() - began) from None

    def end(self) -> None:
        """Kill the process."""
        self._worker.end()


class _Died(Exception):  # noqa: N818 - an event, not an error of ours
    """The candidate is gone, and what that says about the case that it was running."""

    def __init__(self, kind: VerdictKind, message: str, seconds: float) -> None:
        super().__init__(message)
        self.kind, self.message, self.seconds = kind, message, seconds


class _Run:
    """The course of one job."""

    def __init__(self, task: Task, reporter: Reporter, log: CappedLog) -> None:
        self.task, self.reporter, self.log = task, reporter, log
        self.facts = Facts(device=task.job.device)
        self._deadline = time.monotonic() + task.job.job_timeout_s
        self._judge: Worker | None = None
        self._candidate: _Candidate | None = None
        self._death: _Died | None = None
        self._starts = 0
        self._kept: frozenset[str] = frozenset()

    def carry_out(self) -> None:
        """Load, plan, and bring every planned case to a verdict."""
        self._judge = self.start("judge")
        self._new_candidate()
        cases = self._plan()
        for case in cases:
            self.reporter.verdict(self._bring_to_verdict(case))
            self._clear_folder()

    def start(self, role: str) -> Worker:
        """A new process; raises JobFailedError when the interpreter cannot be run."""
        try:
            return Worker(role, self.task, self.log, self.reporter)
        except ProgramMissingError as error:
            raise _failed(
                f"the interpreter cannot be used: {error.message}",
                "set [tool.attngate] interpreter to the Python that the plugin runs in",
            ) from error

    def bounded(self, seconds: float) -> float:
        """A timeout that ends no later than the job may."""
        return max(0.01, min(seconds, self._deadline - time.monotonic()))

    def end(self) -> None:
        """Kill what is running."""
        for worker in (self._candidate, self._judge):
            if worker is not None:
                worker.end()

    def note_origins(self, reply: replies.Loaded | replies.Ran) -> None:
        """Add where the plugin's modules came from to the facts."""
        fields: dict[str, Any] = {
            "outside_closure": _merged(self.facts.outside_closure, reply.outside_closure),
            "mixed": _merged(self.facts.mixed, reply.mixed),
        }
        if isinstance(reply, replies.Loaded):
            fields["signature"] = reply.signature
            fields["modules"] = _merged(self.facts.modules, reply.modules)
            fields["disclosures"] = _merged(self.facts.disclosures, reply.disclosures)
        if fields["outside_closure"]:
            fields["scope"] = "whole tree"
        self.facts = msgspec.structs.replace(self.facts, **fields)

    def _plan(self) -> list[str]:
        loaded = self._candidate.loaded if self._candidate is not None else None
        request: dict[str, Any] = {
            "op": "plan",
            "job": self.task.job.to_json(),
            "folder": str(self.task.folder),
        }
        if loaded is not None and loaded.features is not None:
            request["features"] = list(loaded.features)
        plan = self._ask_judge(request, START_S, replies.Plan)
        cases = [case.id for case in plan.cases]
        if not cases or len(set(cases)) != len(cases):
            what = "names a case twice" if cases else "has no case that this target can be held to"
            raise _failed(f"the plan of suite {self.task.job.target.suite} {what}")
        self.facts = msgspec.structs.replace(
            self.facts,
            suite_version=plan.suite_version,
            planned=tuple(cases),
            left_out=plan.left_out,
        )
        self._kept = frozenset(entry.name for entry in self.task.folder.iterdir())
        self.reporter.planned(self.facts)
        return cases

    def _bring_to_verdict(self, case: str) -> Verdict:
        if time.monotonic() >= self._deadline:
            limit = self.task.job.job_timeout_s
            message = f"not run: the job's {limit:.0f} s were over"
            return Verdict(case, VerdictKind.TIMED_OUT, message)
        if self._candidate is None:
            self._new_candidate()
        if self._candidate is None:
            return self._not_run(case)
        if self._candidate.refused is not None:
            refusal = self._candidate.refused
            kind = VerdictKind(refusal.kind)
            return Verdict(case, kind, refusal.message, refusal.advice, detail=refusal.detail)
        return self._run_case(case, self._candidate)

    def _run_case(self, case: str, candidate: _Candidate) -> Verdict:
        prepared = self._ask_judge({"op": "prepare", "case": case}, JUDGE_S, replies.Prepared)
        request = {"op": "run", "case": case, "calls": prepared.calls}
        limit = self.bounded(self.task.job.case_timeout_s)
        try:
            answer, raw = candidate.ask(request, limit, replies.Ran)
        except _Died as death:
            self._note_death(death)
            return self._verdict_of_death(case, death)
        if isinstance(answer, replies.Refusal):
            _require_not_internal(answer, "the candidate")
        else:
            self.note_origins(answer)
        judged = self._ask_judge(
            {"op": "judge", "case": case, "outcome": raw}, JUDGE_S, replies.Judged
        )
        if judged.verdict.case != case:
            raise _failed(f"the judge answered about {judged.verdict.case!r}, not {case!r}")
        if isinstance(answer, replies.Refusal) and judged.verdict.kind is VerdictKind.PASSED:
            raise _failed(f"the judge passed {case}, which the candidate had not run")
        return judged.verdict

    def _ask_judge(self, request: dict[str, Any], timeout_s: float, kind: type[_T]) -> _T:
        assert self._judge is not None
        about = f"{request['op']} {request.get('case', '')}".strip()
        try:
            reply = replies.read(self._judge.ask(request, timeout_s), kind)
        except DeadlinePassedError:
            raise _failed(f"the judge did not finish {about} within {timeout_s:.0f} s") from None
        except PeerEndedError:
            how, self._judge = self._judge.end(wait_s=1.0), None
            message = f"the judge died during {about}: {how or 'its frames closed'}"
            raise _failed(message, detail=self.log.tail()) from None
        except MalformedFrameError as error:
            raise _failed(f"the judge gave no answer to {about}: {error}") from None
        if isinstance(reply, replies.Refusal):
            raise JobFailedError(_problem(reply))
        return reply

    def _new_candidate(self) -> None:
        """Start and load a candidate, again after a death; leaves None where that is no use.

        A target that has never been loaded is not tried twice: its import would die again.
        """
        while self._candidate is None and self._starts <= MAX_RESTARTS:
            if self._death is not None and not self.facts.signature:
                return
            self._starts += 1
            candidate = _Candidate(self)
            self._candidate = candidate
            try:
                candidate.load(self)
            except _Died as death:
                self._note_death(death)

    def _note_death(self, death: _Died) -> None:
        self._candidate, self._death = None, death
        self.log.note(f"candidate {self._starts}: {death.message}")

    def _verdict_of_death(self, case: str, death: _Died) -> Verdict:
        return Verdict(
            case, death.kind, death.message, seconds=death.seconds, detail=self.log.tail()
        )

    def _not_run(self, case: str) -> Verdict:
        assert self._death is not None
        message = f"not run: after {self._starts} processes, the last of which: {self._death}"
        return Verdict(case, self._death.kind, message, detail=self.log.tail())

    def _clear_folder(self) -> None:
        """Remove what the case left; a job must not fill the memory it shares with the machine."""
        for entry in self.task.folder.iterdir():
            if entry.name in self._kept:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def _merged(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(dict.fromkeys((*one, *other)))


def _require_not_internal(refusal: replies.Refusal, who: str) -> None:
    if refusal.verdict_kind is None:
        raise _failed(f"{who} failed: {refusal.message}", refusal.advice, refusal.detail)


def _problem(refusal: replies.Refusal) -> Problem:
    kind = COULD_NOT_CHECK if refusal.verdict_kind is None else refusal.kind
    return Problem(kind=kind, message=refusal.message, advice=refusal.advice, detail=refusal.detail)


def _failed(message: str, advice: str = "", detail: str = "") -> JobFailedError:
    problem = Problem(kind=COULD_NOT_CHECK, message=message, advice=advice, detail=detail)
    return JobFailedError(problem)
