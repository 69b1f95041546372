"""`attngate gate`: may this be pushed? The static check of each pushed tree, and numerical verdicts."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attngate.hooks import checks, config, output, policy, targets
from attngate.hooks.checks import CheckRequest
from attngate.hooks.commands.check import run_disclosures
from attngate.hooks.errors import AttngateError, UsageError
from attngate.hooks.git import Repository
from attngate.hooks.pushes import read_push
from attngate.hooks.report import TargetReport, TargetState, Unavailable
from attngate.hooks.snapshot import tree_snapshot

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence

    from attngate.hooks.checks import Checked
    from attngate.hooks.pushes import Push, PushedRef
    from attngate.hooks.report import RunReport, TreeReport
    from attngate.validators.model import Snapshot

HELP = """Say whether commits may be pushed: check their trees and ask for their numerical verdicts.

Git calls this through `attngate hook pre-push`. By hand it judges what `git push REMOTE REF...` would
carry, compared with what the remote is known to have; by default HEAD. Nothing is pushed.
"""

_ONE_REF = (
    "one ref seen, others unknown: pre-commit reads git's list of refs and passes one on; "
    "`attngate install` writes a hook that sees them all"
)
_NO_REF = "no ref was named, so the commit that is checked out was judged"


@dataclass(frozen=True, slots=True)
class GateRequest:
    """How a push is judged.

    Attributes:
        env: The caller's environment.
        wait_s: Seconds to wait for verdicts; None for the tree's own `gate.wait_s`.
        tier: Which cases; "" for the tree's own `gate.tier`.
        strict: True where warnings block.
    """

    env: Mapping[str, str]
    wait_s: float | None = None
    tier: str = ""
    strict: bool = False


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("refs", nargs="*", metavar="REF", help="what would be pushed (HEAD)")
    parser.add_argument("--remote", default="origin", help="where to (origin)")
    parser.add_argument("--wait", type=float, metavar="SECONDS", help="instead of gate.wait_s")
    parser.add_argument("--tier", choices=("quick", "default", "full"), default="")
    output.add_arguments(parser)


def run(args: Namespace) -> int:
    """Judge the named refs as if they were pushed; returns the code of the exit table."""
    env = dict(os.environ)
    with Repository.discover(os.getcwd(), env) as repository:
        push = push_of(repository, args.refs or ["HEAD"], args.remote)
        request = GateRequest(env, args.wait, args.tier, args.strict)
        return output.emit(judge(repository, push, request), args)


def run_hook(repository: Repository, push: Push, env: Mapping[str, str]) -> int:
    """Judge a push for git's pre-push hook; what numbers were established is always told."""
    return _tell(judge(repository, push, GateRequest(env)))


def push_of(repository: Repository, names: Sequence[str], remote: str) -> Push:
    """The push that would carry these revisions to branches of the same names.

    Raises:
        UsageError: A name is no revision.
    """
    refs = [(name, _remote_ref(repository, name)) for name in names]
    return push_to(repository, refs, remote=remote)


def _remote_ref(repository: Repository, name: str) -> str:
    """The ref that a push of this name goes to; policies are by branch, and HEAD is none."""
    if name == "HEAD":
        name = os.fsdecode(repository.run("rev-parse", "--symbolic-full-name", name)).strip()
    return name if name.startswith("refs/") else f"refs/heads/{name}"


def push_to(
    repository: Repository, refs: Sequence[tuple[str, str]], url: str = "", remote: str = ""
) -> Push:
    """A push of (revision, remote ref) pairs, as git would describe it to its hook.

    Raises:
        UsageError: A name is no revision.
    """
    lines = []
    oids = repository.peel([local for local, _ in refs])
    for (local, there), oid in zip(refs, oids, strict=True):
        if oid is None:
            raise UsageError(f"there is no revision {local!r} in {repository.folder}")
        # What the remote has there is taken from its tracking refs, as for a new branch.
        lines.append(f"{local} {oid} {there} {'0' * len(oid)}\n")
    return read_push(repository, os.fsencode("".join(lines)), remote, url)


def judge(repository: Repository, push: Push, request: GateRequest) -> RunReport:
    """Judge every distinct tree of a push.

    Args:
        repository: Where it lies.
        push: What is pushed.
        request: How.
    """
    began = time.monotonic()
    trees = [_judge_tree(repository, tree, refs, request) for tree, refs in push.by_tree().items()]
    said = [*run_disclosures(repository), *_skipped_refs(push)]
    if not push.complete:
        said.append(_ONE_REF)
    return output.build("gate", trees, said, strict=request.strict, began=began)


def judge_head(repository: Repository, env: Mapping[str, str]) -> int:
    """Judge HEAD where a hook manager calls the hook without naming a ref."""
    report = judge(repository, push_of(repository, ["HEAD"], "origin"), GateRequest(env))
    report = replace(report, disclosures=(*report.disclosures, _NO_REF))
    return _tell(report)


def _tell(report: RunReport) -> int:
    """Print for a hook what needs attention, and what is known of the targets; the exit code."""
    writer = output.writer_for(sys.stderr)
    sys.stderr.write(writer.short(report) + writer.numbers(report))
    return report.decision.exit_code


def _judge_tree(
    repository: Repository, tree: str, refs: Sequence[PushedRef], request: GateRequest
) -> TreeReport:
    bases = list(dict.fromkeys(base for ref in refs for base in ref.bases))
    subject = tree_snapshot(repository, tree, _name_of(refs[0]), bases)
    names = tuple(dict.fromkeys(ref.remote_ref for ref in refs))
    everything = config.is_ci(request.env) or not bases
    asked = CheckRequest(request.env, repository, everything, refs=names)
    checked = checks.examine(subject, bases, asked)
    return with_verdicts(repository, subject, bases, checked, request)


def with_verdicts(
    repository: Repository,
    subject: Snapshot,
    bases: Sequence[str],
    checked: Checked,
    request: GateRequest,
) -> TreeReport:
    """The report of a checked tree with what is known about its targets."""
    report, settings = checked.report, checked.loaded.settings
    if not settings.targets:
        return replace(report, targets=())
    chosen = policy.policy_for(settings.gate.on_unavailable, report.refs)
    try:
        plan = targets.plan(
            subject, bases, checked.loaded, repository, targets.Ask(tier=request.tier)
        )
    except UsageError:
        raise
    except AttngateError as error:
        return _without_verdicts(
            checked, Unavailable("targets", error.message, error.advice, chosen)
        )
    from attngate.hooks import verdicts

    wait_s = settings.gate.wait_s if request.wait_s is None else request.wait_s
    obtained = verdicts.obtain(plan, verdicts.Wish(request.env, wait_s, chosen))
    return replace(
        report,
        targets=obtained.targets,
        unavailable=(*report.unavailable, *obtained.unavailable),
        disclosures=(*report.disclosures, *obtained.disclosures),
    )


def _without_verdicts(checked: Checked, why: Unavailable) -> TreeReport:
    """The report where no target can be run at all."""
    settings = checked.loaded.settings
    told = tuple(
        TargetReport(
            name=target.name,
            callable=target.callable,
            suite=target.suite,
            device=target.requires,
            tier=settings.gate.tier,
            requires=target.requires,
            state=TargetState.COULD_NOT_CHECK,
            reason=why.why,
        )
        for target in settings.targets
    )
    report = checks.with_unavailable(checked.report, [why])
    return replace(report, targets=told)


def _name_of(ref: PushedRef) -> str:
    what = "tag" if ref.kind == "tag" else "commit"
    return f"{what} {ref.local_ref} ({(ref.commit or ref.local_oid)[:12]})"


def _skipped_refs(push: Push) -> list[str]:
    return [
        f"{ref.local_ref} -> {ref.remote_ref}: not checked, {ref.why}"
        for ref in push.refs
        if not ref.tree and ref.kind != "delete"
    ]
