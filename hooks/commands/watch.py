"""`attngate watch [JOB...]`: follow jobs until they are finished."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.hooks.errors import EXIT_PASS

if TYPE_CHECKING:
    import argparse

    from attngate.gpu_runner.protocol import JobReport

HELP = """follow validation jobs until they are finished

A line is printed whenever something about a job changes. Without a job, everything that is queued or
running now is followed. Leaving with Ctrl-C cancels nothing.
"""
_LONGEST_S = 7 * 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("jobs", nargs="*", metavar="JOB", help="ids, as `daemon status` shows them")


def run(args: argparse.Namespace) -> int:
    """Follow the jobs; the exit code is that of `attngate wait`."""
    from attngate.hooks.runner import connected, exit_code, problem_lines, require_known

    with connected(auto_start=False, name="attngate watch") as client:
        ids = args.jobs or [report.id for report in client.status().jobs]
        if not ids:
            print("no job is queued or running")
            return EXIT_PASS
        lines = _Lines()
        reports = client.wait(ids, _LONGEST_S, lines.show)
    require_known(reports)
    lines.show(reports)  # what it came to may be news
    for report in reports:
        for line in problem_lines(report):
            print(line)
    return exit_code(reports)


class _Lines:
    """Prints each job's line when it says something new."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[object, ...]] = {}

    def show(self, reports: list[JobReport]) -> None:
        """Print what changed."""
        from attngate.hooks.runner import line_of

        for report in reports:
            news = (report.state, report.position, len(report.verdicts), len(report.facts.planned))
            if self._shown.get(report.id) != news:
                self._shown[report.id] = news
                print(line_of(report), flush=True)
