"""`attngate trace`: the way from a backend's registration to the kernels behind it."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from attngate.hooks import checks
from attngate.hooks.commands.check import add_subject_arguments, subject_of
from attngate.hooks.errors import EXIT_PASS, UsageError
from attngate.hooks.git import Repository

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping, Sequence

    from attngate.validators.hops import EntryPoint, Hop
    from attngate.validators.model import Snapshot

HELP = """Print the way from a backend's registration to the kernels behind it, read from the source.

First how the backend is registered and selected, from the entry points of the distribution on; then its
metadata builder, its implementation and the layer that binds it, each with the calls that lead to a
kernel: a component's function, a Triton kernel, an operator of torch.ops or a function of the target.
What stands behind a component's function is the component's own, and is not looked into.

Each hop has its place, the conditions under which it is taken, what decides it, and how strongly that
is established. What cannot be followed is printed as unknown, with the reason.
"""
FORMAT_VERSION = 1
_HEAD = "plugin tree, source-inspected, where a hop says nothing else"
_NO_TARGET = "none installed or configured, so that nothing is followed into it"


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
        entries = entry_points(subject)
        hops = [trace(context, ref, entries) for ref in asked.found]
    target = context.options.target.label if context.options.target is not None else None
    if args.format == "json":
        data = {
            "format_version": FORMAT_VERSION,
            "subject": subject.subject,
            "tree": subject.tree,
            "target": target,
            "traces": [asdict(hop) for hop in hops],
        }
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(data)).decode() + "\n")
    else:
        lines = [
            f"{_HEAD}; target: {target or _NO_TARGET}",
            *(line for hop in hops for line in as_lines(hop)),
        ]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    return EXIT_PASS


def entry_points(subject: Snapshot) -> list[EntryPoint]:
    """Entry points of the distribution that the tree builds, each with the line that says so."""
    from attngate.hooks.distribution import read_distribution
    from attngate.validators.hops import EntryPoint

    distribution = read_distribution(subject)
    texts = {
        path: (subject.blob(path.encode()) or b"").decode("utf-8", "replace").splitlines()
        for path in distribution.sources
    }
    return [
        EntryPoint(group, name, value, _place_of(value, texts))
        for group, pairs in distribution.entry_points.items()
        for name, value in pairs
    ]


def _place_of(value: str, texts: Mapping[str, Sequence[str]]) -> str:
    for path, lines in texts.items():
        for number, line in enumerate(lines, start=1):
            if re.search(rf"{re.escape(value)}(?![\w.:])", line):
                return f"{path} line {number}"
    return ", ".join(texts)


def as_lines(hop: Hop, depth: int = 0) -> Iterator[str]:
    """A hop and what follows it, indented."""
    indent = "  " * depth
    tags = f"  [{', '.join(hop.tags)}]" if hop.tags else ""
    yield f"{indent}{hop.kind}: {hop.name}  ({hop.place}){tags}"
    for condition in hop.conditions:
        yield f"{indent}    if {condition}"
    told = ": ".join(filter(None, [_established(hop), hop.note]))
    if told:
        yield f"{indent}    {told}"
    for step in hop.steps:
        yield from as_lines(step, depth + 1)


def _established(hop: Hop) -> str:
    """Origin and level, where they are others than those that the head of the output names."""
    if hop.origin in ("", "plugin tree") and hop.level.value == "source-inspected":
        return ""
    return ", ".join(filter(None, [hop.origin, hop.level.value]))
