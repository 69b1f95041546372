"""`attngate wait JOB...`: wait until jobs are finished, and tell what they came to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

HELP = """wait for validation jobs and tell what they came to

Exit 0 if every case of every job passed, 1 if a case failed, 4 if a job could not be carried out or
is not finished when the time is up.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="ids, as `daemon status` shows them")
    parser.add_argument(
        "--timeout", type=float, default=3600.0, metavar="S", help="seconds to wait (3600)"
    )


def run(args: argparse.Namespace) -> int:
    """Wait quietly, then print a line for each job."""
    from attngate.hooks.runner import (
        connected,
        exit_code,
        line_of,
        problem_lines,
        require_known,
    )

    with connected(auto_start=False, name="attngate wait") as client:
        reports = client.wait(args.jobs, max(0.0, args.timeout))
    require_known(reports)
    for report in reports:
        print("\n".join([line_of(report), *problem_lines(report)]))
    return exit_code(reports)
