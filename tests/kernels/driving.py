"""Runs a suite against a callable within this process: the real judge, candidate and guards, no daemon.

Only the import of the plugin is left out: the callable is given, not found. For a sample through real
processes see `matrix.py --processes`.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from attngate.gpu_runner.worker import candidate, judge, registry, wire


class _NoTree:
    """Stands in for the plugin's imports, of which there are none here."""

    def __init__(self) -> None:
        self.mixed: dict[str, tuple[str, str]] = {}

    def check(self) -> None:
        return

    def outside_closure(self) -> list[str]:
        return []


@dataclass
class Session:
    """One target under one suite.

    Attributes:
        target: The callable.
        suite: Name of the suite.
        options: The target's declarations.
        tier: "quick", "default" or "full".
        seed: Base seed of the inputs.
        only: Case ids to run, all of the tier if empty.
    """

    target: Callable[..., Any]
    suite: str
    options: dict[str, Any] = field(default_factory=dict)
    tier: str = "default"
    seed: int = 0
    only: tuple[str, ...] = ()
    left_out: list[tuple[str, str]] = field(default_factory=list)

    def verdicts(self, rank: Callable[[str], int] = lambda _case: 0) -> Iterator[wire.Verdict]:
        """The verdicts of all cases, those of low rank first; stop when you have seen enough."""
        target = wire.Target("target", "in:process", self.suite, options=self.options)
        job = wire.Job("in-process", target, tier=self.tier, seed=self.seed, only=self.only)
        with tempfile.TemporaryDirectory() as folder:
            runner = self._runner(job, folder)
            judging = judge.Judge()
            request = {"job": job.to_json(), "folder": folder, "features": runner.reply_features}
            planned = judging.handle({"op": "plan", **request})
            if not planned["ok"]:
                raise AssertionError(planned)
            self.left_out = [(item[0], item[1]) for item in planned["left_out"]]
            for case in sorted(planned["cases"], key=lambda each: rank(each["id"])):
                yield self._one(judging, runner.loaded, case["id"])

    def _runner(self, job: wire.Job, folder: str) -> _Runner:
        name = registry.find(self.suite).adapter
        adapter = importlib.import_module(f"attngate.gpu_runner.worker.adapters.{name}")
        fit = adapter.fit(self.target, self.options)
        loaded = candidate._Loaded(job, _NoTree(), folder, self.target, adapter, fit)
        return _Runner(loaded, sorted(fit.features))

    @staticmethod
    def _one(judging: judge.Judge, loaded: Any, case: str) -> wire.Verdict:
        calls = judging.handle({"op": "prepare", "case": case})["calls"]
        outcome = loaded.run(case, calls)
        reply = judging.handle({"op": "judge", "case": case, "outcome": outcome})
        return wire.verdict_from_json(reply["verdict"])


@dataclass
class _Runner:
    loaded: Any
    reply_features: list[str]


def first_failure(verdicts: Iterable[wire.Verdict]) -> wire.Verdict | None:
    """The first verdict that blames the callable, None if none does."""
    return next((verdict for verdict in verdicts if verdict.kind.is_failure), None)
