"""`attngate logs JOB`: what the processes of a job printed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from attngate.hooks.errors import EXIT_PASS

if TYPE_CHECKING:
    import argparse

HELP = """show what the processes of a validation job printed

The log of the daemon itself is shown by `attngate daemon logs`.
"""
_EVERY_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("job", metavar="JOB", help="id, as `daemon status` shows it")
    parser.add_argument("-n", "--lines", type=int, default=200, help="how many lines (200)")
    parser.add_argument("-f", "--follow", action="store_true", help="until the job is finished")


def run(args: argparse.Namespace) -> int:
    """Print the end of the log, and with --follow what is added to it."""
    from attngate.hooks.runner import connected

    with connected(auto_start=False, name="attngate logs") as client:
        found = client.logs(args.job, args.lines)
        print("\n".join(found.lines))
        position = _size(found.path)
        while args.follow:
            report = client.wait([args.job], 0.0)[0]
            position = _print_from(found.path, position)
            if report.state.is_final:
                break
            time.sleep(_EVERY_S)
    return EXIT_PASS


def _size(path: str) -> int:
    with open(path, "rb") as file:
        return file.seek(0, 2)


def _print_from(path: str, position: int) -> int:
    with open(path, "rb") as file:
        file.seek(position)
        text = file.read().decode("utf-8", "replace")
        print(text, end="", flush=True)
        return file.tell()
