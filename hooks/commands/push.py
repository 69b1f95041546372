"""`attngate push`: wait for the verdicts first, push then.

Git opens the connection before it runs the pre-push hook, and servers drop one that is silent for
minutes. Here everything is judged before a connection stays open.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from attngate.hooks import output
from attngate.hooks.commands import gate
from attngate.hooks.errors import EXIT_PASS
from attngate.hooks.git import Repository

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

HELP = """Wait for the verdicts of what `git push` would carry, then run git push.

Takes git push's own arguments. Nothing is pushed where the gate refuses; there is no time limit on
the wait.
"""
PASSES_ON = True  # every argument is git's
_FOREVER_S = 7 * 24 * 3600.0


def add_arguments(parser: ArgumentParser) -> None:
    """Declare git's own arguments."""
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="as for git push"
    )


def run(args: Namespace) -> int:
    """Judge, then push; returns the gate's code, or git's where the gate agrees."""
    arguments = args.arguments[1:] if args.arguments[:1] == ["--"] else args.arguments
    env = dict(os.environ)
    with Repository.discover(os.getcwd(), env) as repository:
        url, refs = repository.planned_push(arguments)
        sources = [(local, remote) for local, remote in refs if local]
        if sources:
            push = gate.push_to(repository, sources, url)
            report = gate.judge(repository, push, gate.GateRequest(env, _FOREVER_S))
            code = report.decision.exit_code
            if code != EXIT_PASS:
                sys.stdout.write(output.writer_for(sys.stdout).full(report))
                return code
        return repository.push(arguments)
