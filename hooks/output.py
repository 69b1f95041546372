"""Where a report goes: standard output or error as text, and a file or standard output as data."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import tempfile
import time
from typing import TYPE_CHECKING, TextIO

from attngate.hooks import formats, policy
from attngate.hooks.errors import EXIT_PASS, UsageError
from attngate.hooks.formats.text import Writer
from attngate.hooks.report import RunReport
from attngate.hooks.terminal import has_colour

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Sequence

    from attngate.hooks.report import TreeReport


def format_names() -> list[str]:
    """The formats there are: the modules of the package `formats`."""
    return sorted(module.name for module in pkgutil.iter_modules(formats.__path__))


def add_arguments(parser: ArgumentParser) -> None:
    """Declare what every reporting verb takes."""
    parser.add_argument("--format", choices=format_names(), default="text", help="default: text")
    parser.add_argument(
        "--output-file", metavar="FILE", help="write the report there, and text to the terminal"
    )
    parser.add_argument("--strict", action="store_true", help="warnings block too")
    parser.add_argument("-q", "--quiet", action="store_true", help="print nothing on success")


def build(
    verb: str,
    trees: Sequence[TreeReport],
    disclosures: Iterable[str],
    *,
    strict: bool,
    began: float,
) -> RunReport:
    """The report of a run with its decision.

    Args:
        verb: The command.
        trees: What was established about each tree.
        disclosures: What holds for the whole run.
        strict: True where warnings block.
        began: `time.monotonic()` at its start.
    """
    return RunReport(
        verb=verb,
        decision=policy.decide(trees, strict=strict),
        trees=tuple(trees),
        disclosures=tuple(disclosures),
        strict=strict,
        seconds=time.monotonic() - began,
    )


def emit(report: RunReport, args: Namespace) -> int:
    """Write the report as the arguments of `add_arguments` ask; returns its exit code.

    Raises:
        UsageError: The output file cannot be written.
    """
    if args.output_file:
        _write(args.output_file, render(report, args.format))
    passed = report.decision.exit_code == EXIT_PASS
    if args.format != "text" and not args.output_file:
        sys.stdout.write(render(report, args.format).decode())
    elif not (args.quiet and passed):
        sys.stdout.write(writer_for(sys.stdout).full(report))
    return report.decision.exit_code


def render(report: RunReport, name: str) -> bytes:
    """The report in a format."""
    rendered: bytes = importlib.import_module(f"attngate.hooks.formats.{name}").render(report)
    return rendered


def writer_for(stream: TextIO) -> Writer:
    """A writer of text that suits the stream."""
    return Writer(colour=has_colour(stream, os.environ))


def _write(path: str, data: bytes) -> None:
    """Write a file in one step, so that a reader never sees half of it."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        if os.path.exists(path) and not os.path.isfile(path):  # a pipe or a device
            with open(path, "wb") as file:
                file.write(data)
            return
        descriptor, temporary = tempfile.mkstemp(prefix=".attngate-", dir=folder)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
            mask = os.umask(0o077)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise UsageError(f"cannot write the report to {path}: {error.strerror or error}") from error
