"""`attngate trace`: the way from a backend's registration to the kernels behind it."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from attngate.hooks import checks
from attngate.hooks.commands.check import add_subject_arguments, subject_of
from attngate.hooks.errors import EXIT_PASS, UsageError
from attngate.hooks.git import Repository

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from attngate.validators.trace import Hop

HELP = """Print the way from a backend's registration to the kernels behind it, read from the source.

Each hop has its place, the conditions under which it is taken, what decides it, and how strongly that
is established. What cannot be followed is printed as unknown, with the reason.
"""
FORMAT_VERSION = 1


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what is traced, in which tree, and how it is printed."""
    parser.add_argument(
        "name", help="a backend as it is registered (FLASH_ATTN), a class, a module or a function"
    )
    add_subject_arguments(parser)
    parser.add_argument("--format", choices=["text", "json"], default="text", help="default: text")


def run(args: Namespace) -> int:
    """Print the trace.

    Raises:
        UsageError: Nothing in scope has that name.
    """
    import msgspec

    from attngate.validators.trace import find, trace

    with Repository.discover(os.getcwd(), dict(os.environ)) as repository:
        subject = subject_of(repository, args)
        context = checks.context_of(subject, checks.CheckRequest(dict(os.environ), repository))
        asked = find(context, args.name)
        if not asked.found:
            close = f"close are: {', '.join(asked.close)}" if asked.close else "nothing is close"
            raise UsageError(f"nothing in scope is called {args.name}", close)
        hops = [trace(context, ref) for ref in asked.found]
    if args.format == "json":
        data = {
            "format_version": FORMAT_VERSION,
            "subject": subject.subject,
            "tree": subject.tree,
            "traces": [asdict(hop) for hop in hops],
        }
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(data)).decode() + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for hop in hops for line in as_lines(hop)))
    return EXIT_PASS


def as_lines(hop: Hop, depth: int = 0) -> Iterator[str]:
    """A hop and what follows it, indented."""
    indent = "  " * depth
    tags = f"  [{', '.join(hop.tags)}]" if hop.tags else ""
    yield f"{indent}{hop.kind}: {hop.name}  ({hop.place}){tags}"
    for condition in hop.conditions:
        yield f"{indent}    if {condition}"
    by = f"{hop.origin}, " if hop.origin not in ("", "plugin tree") else ""
    if hop.note or by:
        note = f": {hop.note}" if hop.note else ""
        yield f"{indent}    {by}{hop.level.value}{note}"
    for step in hop.steps:
        yield from as_lines(step, depth + 1)
