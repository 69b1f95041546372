"""`attngate validate`: run the numerical suites on the targets of one tree."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from attngate.hooks import checks, config, output, targets
from attngate.hooks.commands.check import add_subject_arguments, run_disclosures, subject_of
from attngate.hooks.errors import UsageError
from attngate.hooks.git import Repository
from attngate.hooks.report import TreeReport, Unavailable

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

    from attngate.hooks.report import TargetReport
    from attngate.hooks.targets import TreePlan
    from attngate.hooks.verdicts import Obtained
    from attngate.validators.model import Snapshot

HELP = """Hold the tree's targets to their numerical suites and wait for the verdicts.

By default every target that the staged change can affect; --all takes every target. Verdicts for the
same files, settings and environment are used again unless --fresh is given. Exit 1 when a verdict
fails, 4 when something could not be checked, 0 only if all that was asked for passed.
"""
# A validation by hand has no push behind it that a quiet connection could lose.
_FOREVER_S = 7 * 24 * 3600.0


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_subject_arguments(parser)
    parser.add_argument("--all", action="store_true", help="every target, affected or not")
    parser.add_argument(
        "--target", action="append", default=[], metavar="NAME", help="only this one; repeatable"
    )
    parser.add_argument("--tier", choices=("quick", "default", "full"), default="")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="", help="instead of requires")
    parser.add_argument("--fresh", action="store_true", help="run what is already known too")
    parser.add_argument("--wait", type=float, metavar="SECONDS", default=_FOREVER_S)
    output.add_arguments(parser)


def run(args: Namespace) -> int:
    """Validate and report; returns the code of the exit table."""
    began = time.monotonic()
    env = dict(os.environ)
    with Repository.discover(os.getcwd(), env) as repository:
        subject = subject_of(repository, args)
        loaded = config.load(subject, env)
        if not loaded.settings.targets:
            raise UsageError(
                f"no target is configured in {subject.subject}, so nothing can be validated",
                "add a [[tool.attngate.targets]] table to pyproject.toml; `attngate init` shows one",
            )
        everything = args.all or bool(args.target)
        ask = targets.Ask(args.tier, args.device, tuple(args.target), everything)
        plan = targets.plan(subject, _bases(repository, args), loaded, repository, ask)
        tree = _report(subject, plan, _obtain(plan, env, args), loaded)
        notes = run_disclosures(repository)
        report = output.build("validate", [tree], notes, strict=args.strict, began=began)
        return output.emit(report, args)


def _bases(repository: Repository, args: Namespace) -> list[str]:
    if args.rev:
        commit = repository.resolve_commit(args.rev)
        parents = repository.peel([f"{p}^{{tree}}" for p in repository.commit_parents(commit)])
        return [tree for tree in parents if tree]
    return repository.merge_parents_trees()


def _obtain(plan: TreePlan, env: Mapping[str, str], args: Namespace) -> Obtained:
    from attngate.hooks import verdicts

    return verdicts.obtain(plan, verdicts.Wish(env, args.wait, fresh=args.fresh))


def _report(
    subject: Snapshot, plan: TreePlan, obtained: Obtained, loaded: config.Loaded
) -> TreeReport:
    return TreeReport(
        subject=subject.subject,
        tree=subject.tree,
        scope="numerical targets only",
        targets=obtained.targets,
        unavailable=(*obtained.unavailable, *_other_device(obtained.targets)),
        disclosures=(*_affected(plan), *obtained.disclosures, *checks.loaded_disclosures(loaded)),
        statically_checked=False,
    )


def _other_device(told: tuple[TargetReport, ...]) -> list[Unavailable]:
    """What a run on another device than the required one leaves open."""
    return [
        replace(
            Unavailable(f"target {t.name} on {t.requires}", f"it was run on {t.device}"),
            advice=f"the table asks for {t.requires}: leave --device out to hold it to that",
        )
        for t in told
        if t.affected and t.requires == "cuda" and t.device != "cuda"
    ]


def _affected(plan: TreePlan) -> list[str]:
    if any(target.affected for target in plan.targets):
        return []
    return ["no target is affected by the staged change; --all validates every target"]
