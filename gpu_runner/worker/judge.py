"""The process that knows what is right: plans the cases, prepares their calls, judges what came back.

It never imports the user's code. The inputs of a case depend only on the job's seed and the case's id.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from attngate.gpu_runner.worker import exchange, guards, registry, tensors, wire
from attngate.gpu_runner.worker.main import refusal
from attngate.gpu_runner.worker.registry import CaseSpec, Declaration
from attngate.gpu_runner.worker.wire import Verdict, VerdictKind

if TYPE_CHECKING:
    from collections.abc import Sequence


class Judge:
    """Answers "plan", "prepare" and "judge"."""

    def __init__(self) -> None:
        self._session: _Session | None = None

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to one frame."""
        if request["op"] == "plan":
            return self._plan(request)
        session = self._session
        if session is None:
            return refusal("internal", f"the judge cannot {request['op']!r} before a plan")
        if request["op"] == "prepare":
            return {"ok": True, "calls": session.prepare(request["case"])}
        verdict = session.judge(request["case"], request["outcome"])
        return {"ok": True, "verdict": verdict.to_json()}

    def _plan(self, request: dict[str, Any]) -> dict[str, Any]:
        job = wire.job_from_json(request["job"])
        try:
            suite = registry.find(job.target.suite)
            declaration = declaration_of(job, request.get("features"))
            cases, left_out = plan(suite, job, declaration)
        except registry.DeclarationError as error:
            return refusal("unsupported", error.message, error.advice)
        if not cases:
            reasons = "; ".join(f"{what}: {why}" for what, why in left_out) or "the suite has none"
            message = f"no case of {suite.name} is left to run ({reasons})"
            return refusal("unsupported", message, "widen the target's declaration or the tier")
        self._session = _Session(suite, job, declaration, request["folder"], cases)
        return {
            "ok": True,
            "suite_version": suite.version,
            "cases": [{"id": full, "axes": case.axes} for full, case in cases.items()],
            "left_out": [list(item) for item in left_out],
        }


def declaration_of(job: wire.Job, features: Sequence[str] | None) -> Declaration:
    """What the suite may know of the job; `features` is from the candidate's load reply."""
    return Declaration(
        target=job.target.name,
        suite=job.target.suite,
        options=job.target.options,
        device=job.device,
        tier=job.tier,
        features=None if features is None else frozenset(features),
    )


def plan(
    suite: registry.Suite, job: wire.Job, declaration: Declaration
) -> tuple[dict[str, CaseSpec], list[registry.LeftOut]]:
    """The cases to run by full id, and what is left out and why."""
    if job.tier not in registry.TIERS:
        raise registry.DeclarationError(f"there is no tier {job.tier!r}", "quick, default or full")
    planned, left_out = suite.plan(declaration)
    chosen: dict[str, CaseSpec] = {}
    for case in planned:
        full = f"{suite.name}/{case.id}"
        if full in chosen:
            raise ValueError(f"suite {suite.name} plans {case.id} twice")
        why = _why_left_out(case, full, job, declaration)
        if why:
            left_out.append((full, why))
        elif why is None:
            chosen[full] = case
    ids = {f"{suite.name}/{case.id}" for case in planned}
    left_out += [(case, "the suite has no such case") for case in job.only if case not in ids]
    return chosen, left_out


def _why_left_out(case: CaseSpec, full: str, job: wire.Job, declaration: Declaration) -> str | None:
    """The reason to report, "" for a case that was not asked for, None for one that is run."""
    if job.only:
        if full not in job.only:
            return ""
    elif registry.TIERS.index(case.tier) > registry.TIERS.index(job.tier):
        return ""
    if case.device == "cuda" and job.device != "cuda":
        return "needs a CUDA device"
    if declaration.features is not None:
        missing = [name for name in case.needs if name not in declaration.features]
        if missing:
            return f"the callable takes no {', '.join(missing)}"
    return None


@dataclass
class _Session:
    """One planned job."""

    suite: registry.Suite
    job: wire.Job
    declaration: Declaration
    folder: str
    cases: dict[str, CaseSpec]

    def prepare(self, full: str) -> str:
        """Write the calls of a case; returns the name of the calls file in the folder."""
        case = self.cases[full]
        runs = guards.plan_runs(self._calls(full))
        stem = self._stem(full)
        files: dict[tuple[str, bytes], str] = {}
        data = {
            "case": full,
            "dtype": case.dtype,
            "device": self.job.device,
            "needs": list(case.needs),
            "calls": [self._call_data(run, stem, files) for run in runs],
        }
        exchange.write_json(data, os.path.join(self.folder, f"{stem}.json"))
        return f"{stem}.json"

    def judge(self, full: str, outcome: dict[str, Any]) -> Verdict:
        """The verdict on a case; its files are removed."""
        try:
            verdict = self._verdict(full, outcome)
        finally:
            self._remove_files(self._stem(full))
        return replace(verdict, case=full, seconds=float(outcome.get("seconds", 0.0)))

    def _verdict(self, full: str, outcome: dict[str, Any]) -> Verdict:
        if not outcome["ok"]:
            return Verdict(
                full,
                VerdictKind(outcome["kind"]),
                str(outcome.get("message", "")),
                str(outcome.get("advice", "")),
                detail=str(outcome.get("detail", "")),
            )
        calls = self._calls(full)
        runs = guards.plan_runs(calls)
        results = self._results(runs, outcome["outputs"])
        refused = _refused(runs, results)
        if refused:
            return Verdict(full, VerdictKind.UNSUPPORTED, refused)
        deterministic = bool(self.declaration.options.get("deterministic", True))
        fault = guards.fault_of(runs, results, deterministic=deterministic)
        if fault is not None:
            return Verdict(full, fault.kind, fault.message, fault.advice)
        return self._numbers(full, calls, runs, results, 1 if deterministic else 2)

    def _numbers(
        self,
        full: str,
        calls: list[registry.Call],
        runs: list[guards.Run],
        results: dict[str, guards.Result],
        rounds: int,
    ) -> Verdict:
        """The suite's verdict; where the rounds may differ, on each of them."""
        case = self.cases[full]
        verdict = None
        for round_ in range(1, rounds + 1):
            outcomes = guards.outcomes_of(runs, results, round_)
            verdict = self.suite.judge(case, self.declaration, calls, outcomes)
            if verdict.kind is not VerdictKind.PASSED:
                break
        assert verdict is not None
        return verdict

    def _calls(self, full: str) -> list[registry.Call]:
        case = self.cases[full]
        seed = hashlib.sha256(f"{self.job.seed} {full}".encode()).digest()
        rng = torch.Generator().manual_seed(int.from_bytes(seed[:8], "big") >> 1)
        calls = self.suite.prepare(case, self.declaration, rng)
        ids = [call.id for call in calls]
        if not calls or len(set(ids)) != len(ids):
            raise ValueError(f"{full}: calls need distinct ids and at least one: {ids}")
        return calls

    def _stem(self, full: str) -> str:
        return f"case{list(self.cases).index(full)}"

    def _call_data(
        self, run: guards.Run, stem: str, files: dict[tuple[str, bytes], str]
    ) -> dict[str, Any]:
        keys = {id(a.tensor): key for a, key in run.arguments.values()}
        return {
            "id": run.id,
            "call": run.call.id,
            "round": run.round,
            "fill": run.fill,
            "expect": run.call.expect,
            "after": run.earlier,
            "refill": run.call.refill,
            "args": {
                name: exchange.encode(value, lambda t: exchange.describe(t, keys[id(t)]))
                for name, value in run.call.args.items()
            },
            "storages": {
                key: {"file": self._storage_file(stem, key, raw, files), "bytes": raw.numel()}
                for key, raw in run.before.items()
            },
        }

    def _storage_file(
        self, stem: str, key: str, raw: torch.Tensor, files: dict[tuple[str, bytes], str]
    ) -> str:
        """The file with these bytes; runs that start from the same bytes share one."""
        digest = hashlib.sha256(tensors.memory_of(raw)).digest()
        name = files.get((key, digest))
        if name is None:
            name = files[key, digest] = f"{stem}-in{len(files)}.bin"
            exchange.write_bytes(raw, os.path.join(self.folder, name))
        return name

    def _results(self, runs: list[guards.Run], name: str) -> dict[str, guards.Result]:
        path = os.path.join(self.folder, os.path.basename(name))
        entries = {entry["id"]: entry for entry in exchange.read_json(path)["results"]}
        return {run.id: self._result(run, entries[run.id]) for run in runs}

    def _result(self, run: guards.Run, entry: dict[str, Any]) -> guards.Result:
        raised = entry["raised"]
        changed = {
            key: exchange.read_bytes(os.path.join(self.folder, file), run.before[key].numel())
            for key, file in entry["storages_after"].items()
        }
        return guards.Result(
            {n: exchange.read_tensor(t, self.folder) for n, t in entry["returned"].items()},
            changed,
            (raised["type"], raised["message"]) if raised else None,
            entry["aliases"],
            entry["kept_changed"],
        )

    def _remove_files(self, stem: str) -> None:
        for name in os.listdir(self.folder):
            if name == f"{stem}.json" or name.startswith(f"{stem}-"):
                os.unlink(os.path.join(self.folder, name))


def _refused(runs: list[guards.Run], results: dict[str, guards.Result]) -> str:
    """Why a probed call was refused, "" if none was."""
    for run in runs:
        raised = results[run.id].raised
        if raised and run.call.expect == "either":
            return f"call {run.call.id!r} was refused with {raised[0]}: {raised[1]}"
    return ""
