"""`attngate cancel JOB...`: end jobs that nobody wants any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.hooks.errors import EXIT_COULD_NOT_CHECK, EXIT_PASS

if TYPE_CHECKING:
    import argparse

HELP = """cancel validation jobs, whoever asked for them

A push that waits for a cancelled job is refused: there is no verdict.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="ids, as `daemon status` shows them")


def run(args: argparse.Namespace) -> int:
    """Cancel, and print what became of each job; exit 4 if one is still there."""
    from attngate.hooks.runner import connected, line_of, require_known

    with connected(auto_start=False, name="attngate cancel") as client:
        reports = client.cancel(args.jobs)
    require_known(reports)
    for report in reports:
        print(line_of(report))
    ended = all(report.state.is_final for report in reports)
    return EXIT_PASS if ended else EXIT_COULD_NOT_CHECK
