"""`attngate daemon start|stop|status|logs`: the process that runs validations."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from attngate.hooks.errors import EXIT_COULD_NOT_CHECK, EXIT_PASS

if TYPE_CHECKING:
    import argparse

    from attngate.gpu_runner.protocol import StatusReply

HELP = """start, stop or look at the validation daemon

It is started by itself when a validation is asked for, and ends by itself when it has been idle for
half an hour (ATTNGATE_IDLE_S). There is one for each user and machine.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="start|stop|status|logs")
    commands.add_parser("start", help="start it, unless it is running")
    stop = commands.add_parser("stop", help="end it; jobs are cancelled")
    stop.add_argument("--drain", action="store_true", help="finish what is queued or running first")
    stop.add_argument("--force", action="store_true", help="kill it if it does not answer")
    status = commands.add_parser("status", help="what it is and is doing; exit 4 if not running")
    status.add_argument("--format", choices=("text", "json"), default="text")
    logs = commands.add_parser("logs", help="the end of its log")
    logs.add_argument("-n", "--lines", type=int, default=100, help="how many lines (100)")


def run(args: argparse.Namespace) -> int:
    """Carry out the sub-command."""
    actions = {"start": _start, "stop": _stop, "status": _status, "logs": _logs}
    return actions[args.action](args)


def _start(_: argparse.Namespace) -> int:
    from attngate.hooks.runner import connected

    with connected() as client:
        print(f"the daemon is running: process {client.welcome.pid}")
    return EXIT_PASS


def _stop(args: argparse.Namespace) -> int:
    from attngate.gpu_runner.client import Client, NotRunningError, kill_unresponsive
    from attngate.gpu_runner.errors import RunnerError
    from attngate.hooks.runner import runner_errors

    with runner_errors():
        try:
            with Client.connect(auto_start=False) as client:
                reply = client.stop("drained" if args.drain else "now")
        except NotRunningError:
            print("the daemon is not running")
            return EXIT_PASS
        except RunnerError:
            if not args.force:
                raise
            print(f"killed process {kill_unresponsive()}, which did not answer")
            return EXIT_PASS
    if args.drain:
        print(f"process {reply.pid} ends when its {reply.jobs} jobs are done")
    else:
        cancelled = f"; {reply.jobs} jobs were cancelled" if reply.jobs else ""
        print(f"stopped process {reply.pid}{cancelled}")
    return EXIT_PASS


def _status(args: argparse.Namespace) -> int:
    from attngate.gpu_runner.client import Client, NotRunningError
    from attngate.hooks.runner import runner_errors

    with runner_errors():
        try:
            with Client.connect(auto_start=False) as client:
                status = client.status()
        except NotRunningError:
            print('{"running": false}' if args.format == "json" else "the daemon is not running")
            return EXIT_COULD_NOT_CHECK
    if args.format == "json":
        _print_json(status)
    else:
        _print_text(status)
    return EXIT_PASS


def _logs(args: argparse.Namespace) -> int:
    from attngate.gpu_runner import client, paths
    from attngate.hooks.runner import runner_errors

    with runner_errors():
        tail, path = client.log_tail(max(0, args.lines)), paths.daemon_log()
    print(tail or f"there is no log at {path}")
    return EXIT_PASS


def _print_json(status: StatusReply) -> None:
    import json

    from attngate.gpu_runner.protocol import to_builtins

    print(json.dumps({"running": True, **to_builtins(status)}, indent=2))


def _print_text(status: StatusReply) -> None:
    from attngate.hooks.runner import line_of, problem_lines

    since = round(time.time() - status.started_at)
    ending = ", ending" if status.ending else ""
    print(f"running: process {status.pid}, attngate {status.version}, since {since} s{ending}")
    print(f"  interpreter {status.interpreter}\n  evidence    {status.evidence}")
    print(f"  log         {status.log}")
    for warning in status.warnings:
        print(f"  warning: {warning}")
    for slot in status.slots:
        print(f"  {slot.name:<11} {slot.job or 'free'}")
    for title, reports in (("jobs", status.jobs), ("finished", status.finished)):
        if reports:
            print(f"{title}:")
        for report in reports:
            print("\n".join([f"  {line_of(report)}", *problem_lines(report)]))
