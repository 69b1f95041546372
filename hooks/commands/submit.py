"""`attngate submit`: hand a commit to the validation runner and do not wait."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from attngate.hooks import config, targets
from attngate.hooks.errors import EXIT_PASS
from attngate.hooks.git import Repository

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping

HELP = """Hand a commit to the validation runner and return at once; its push finds the verdicts.

By default HEAD, whose change decides which targets are run. Git calls this through
`attngate hook post-commit`.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("rev", nargs="?", default="HEAD", metavar="REV", help="which commit (HEAD)")
    parser.add_argument("--all", action="store_true", help="every target, affected or not")


def run(args: Namespace) -> int:
    """Submit and say which jobs there are."""
    env = dict(os.environ)
    with Repository.discover(os.getcwd(), env) as repository:
        jobs = submit(repository, args.rev, env, everything=args.all)
    print(f"attngate: {len(jobs)} jobs submitted" + (f": {', '.join(jobs)}" if jobs else ""))
    return EXIT_PASS


def run_hook(repository: Repository, env: Mapping[str, str]) -> int:
    """Submit the commit that was just made; says nothing where there is nothing to do."""
    jobs = submit(repository, "HEAD", env)
    if jobs and sys.stderr.isatty():
        told = "1 validation" if len(jobs) == 1 else f"{len(jobs)} validations"
        print(f"attngate: {told} started; the push will ask for the verdicts", file=sys.stderr)
    return EXIT_PASS


def submit(
    repository: Repository, rev: str, env: Mapping[str, str], *, everything: bool = False
) -> list[str]:
    """Queue the missing verdicts of a commit's targets.

    Args:
        repository: Where it lies.
        rev: The commit.
        env: The caller's environment.
        everything: True where every target counts as affected.

    Returns:
        Ids of the jobs.

    Raises:
        AttngateError: The configuration, the interpreter or the daemon cannot be used.
    """
    subject = repository.revision_snapshot(rev)
    loaded = config.load(subject, env)
    if not loaded.settings.targets:
        return []
    commit = repository.resolve_commit(rev)
    parents = repository.peel([f"{p}^{{tree}}" for p in repository.commit_parents(commit)])
    bases = [tree for tree in parents if tree]
    plan = targets.plan(subject, bases, loaded, repository, targets.Ask(everything=everything))
    if not any(target.affected for target in plan.targets):
        return []
    from attngate.hooks import verdicts

    return verdicts.hand_over(plan, env)
