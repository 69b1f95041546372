"""`attngate check`: the static check of one tree."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from attngate.hooks import checks, config, fast, output
from attngate.hooks.checks import CheckRequest
from attngate.hooks.errors import EXIT_PASS, AttngateError, UsageError
from attngate.hooks.git import Repository

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence

    from attngate.hooks.checks import Checked
    from attngate.validators.model import Snapshot

HELP = """Check a tree without running it: contracts of the kernel components, configured linters.

The whole scope of the tree is checked, by default of the staged index. Findings that HEAD shows too
are listed and do not block; with --all, --rev, --installed, CI=true, or an index equal to HEAD, all
block that no baseline holds. Nothing in the work tree, the index or the environment is changed.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add_subject_arguments(parser)
    parser.add_argument(
        "--installed", metavar="DIST", help="check an installed distribution of the interpreter"
    )
    parser.add_argument("--all", action="store_true", help="nothing counts as inherited")
    parser.add_argument("--base", metavar="REV", help="compare with this revision instead")
    parser.add_argument(
        "--previous-target",
        metavar="PATH_OR_VERSION",
        help="target before a sync: also list the local changes that the sync lost",
    )
    parser.add_argument(
        "--sync-base", metavar="REV", help="tree before the sync (default: the parent, or HEAD)"
    )
    output.add_arguments(parser)


def add_subject_arguments(parser: ArgumentParser) -> None:
    """Declare which tree of the repository is meant."""
    subject = parser.add_mutually_exclusive_group()
    subject.add_argument("--staged", action="store_true", help="the index (the default)")
    subject.add_argument(
        "--worktree", action="store_true", help="tracked files as they are on disk"
    )
    subject.add_argument("--rev", metavar="REV", help="the tree of a revision")


def run(args: Namespace) -> int:
    """Check and report; returns the code of the exit table."""
    began = time.monotonic()
    env = dict(os.environ)
    if args.sync_base and not args.previous_target:
        raise UsageError(
            "--sync-base says what a sync began with, and nothing says which target that was made for",
            "add --previous-target PATH_OR_VERSION",
        )
    if args.installed:
        if args.rev or args.worktree or args.staged or args.base or args.previous_target:
            raise UsageError("--installed names a subject of its own; leave the other one out")
        report = _installed(args.installed, env).report
        return output.emit(
            output.build("check", [report], [], strict=args.strict, began=began), args
        )
    with Repository.discover(os.getcwd(), env) as repository:
        subject = subject_of(repository, args)
        bases, everything = _comparison(repository, subject, args)
        request = CheckRequest(
            env,
            repository,
            everything,
            previous_target=args.previous_target or "",
            sync_base=_sync_base(repository, args) if args.previous_target else None,
        )
        report = checks.examine(subject, bases, request).report
        notes = run_disclosures(repository)
        return output.emit(
            output.build("check", [report], notes, strict=args.strict, began=began), args
        )


def run_hook(repository: Repository, env: Mapping[str, str]) -> int:
    """Check the staged index for git's pre-commit hook: quiet unless something needs attention."""
    began = time.monotonic()
    subject = repository.index_snapshot()
    bases = repository.merge_parents_trees()
    everything = config.is_ci(env) or _is_run_by_hand(subject, bases, env)
    checked = checks.examine(subject, bases, CheckRequest(env, repository, everything))
    notes = run_disclosures(repository)
    report = output.build("check", [checked.report], notes, strict=False, began=began)
    text = output.writer_for(sys.stderr).short(report)
    sys.stderr.write(text)
    if report.decision.exit_code == EXIT_PASS and not checked.report.unavailable:
        fast.remember(repository, checked.depends, text.rstrip("\n"))
    return report.decision.exit_code


def run_disclosures(repository: Repository) -> list[str]:
    """What every report of this repository has to say beside its trees."""
    warning = checks.push_hook_warning(repository)
    return [warning] if warning else []


def subject_of(repository: Repository, args: Namespace) -> Snapshot:
    """The tree that the arguments of `add_subject_arguments` name."""
    if args.rev:
        return repository.revision_snapshot(args.rev)
    if args.worktree:
        return repository.worktree_snapshot()
    return repository.index_snapshot()


def _sync_base(repository: Repository, args: Namespace) -> Snapshot:
    """The tree before the sync: named, else the revision's first parent, else HEAD."""
    if args.sync_base or not args.rev:
        return repository.revision_snapshot(args.sync_base or "HEAD")
    parents = repository.commit_parents(repository.resolve_commit(args.rev))
    if not parents:
        raise UsageError(
            f"{args.rev} has no parent that a sync could have begun with",
            "add --sync-base REV",
        )
    return repository.revision_snapshot(parents[0])


def _comparison(
    repository: Repository, subject: Snapshot, args: Namespace
) -> tuple[list[str], bool]:
    """Trees to compare with, and whether everything counts as new all the same."""
    if args.base:
        base = repository.peel([f"{repository.resolve_commit(args.base)}^{{tree}}"])[0]
        return ([base] if base else []), args.all
    if args.rev:
        commit = repository.resolve_commit(args.rev)
        parents = repository.peel([f"{p}^{{tree}}" for p in repository.commit_parents(commit)])
        return [tree for tree in parents if tree], True
    if args.worktree:
        bases = [tree for tree in [repository.head_tree()] if tree]
    else:
        bases = repository.merge_parents_trees()
    env = repository.user_env
    everything = args.all or config.is_ci(env)
    return bases, everything or (not args.worktree and _is_run_by_hand(subject, bases, env))


def _is_run_by_hand(subject: Snapshot, bases: Sequence[str], env: Mapping[str, str]) -> bool:
    """True where nothing is staged and no commit is being made: somebody asks about the whole tree.

    Git names the index in GIT_INDEX_FILE when it commits. An amended message or an empty commit also
    has HEAD's tree, and must not be stopped by what was there before.
    """
    return bases[:1] == [subject.tree] and not env.get("GIT_INDEX_FILE")


def _installed(distribution: str, env: Mapping[str, str]) -> Checked:
    from attngate.hooks import interpreters
    from attngate.hooks.snapshot import installed

    loaded, toplevel = _settings_here(env)
    interpreter = interpreters.locate(loaded.settings.interpreter, toplevel)
    subject = installed(distribution, interpreters.site_packages(interpreter))
    return checks.examine(subject, (), CheckRequest(env, None, everything=True, loaded=loaded))


def _settings_here(env: Mapping[str, str]) -> tuple[config.Loaded, str]:
    """Settings of the work tree that the command runs in; defaults outside of one."""
    from attngate.validators.model import Snapshot

    try:
        repository = Repository.discover(os.getcwd(), env)
    except AttngateError:
        nothing = Snapshot("", "no repository", {}, lambda _oid: None)
        return config.load(nothing, env), os.getcwd()
    with repository:
        return config.load(repository.worktree_snapshot(), env), repository.toplevel
