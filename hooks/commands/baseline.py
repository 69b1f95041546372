"""`attngate baseline create|show`: take attngate on in a plugin that already has findings."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

from attngate.hooks import baseline, checks
from attngate.hooks.checks import CheckRequest
from attngate.hooks.commands.check import add_subject_arguments, subject_of
from attngate.hooks.errors import EXIT_PASS, CouldNotCheckError, UsageError
from attngate.hooks.git import Repository
from attngate.hooks.terminal import escape

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from typing import Any

    from attngate.hooks.checks import Checked
    from attngate.validators.model import Finding, Snapshot

HELP = """Write down the findings that are there, so that only new ones block; or show what is written.

`create` checks a tree and writes the file that the setting `baseline` names; commit it. Entries have
no line numbers, so edits elsewhere in a file leave them valid. An existing file is only replaced with
--update, which drops entries that match nothing any more and takes none in, unless --grow says so.
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the sub-commands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="create|show")
    create = commands.add_parser("create", help="write the file")
    add_subject_arguments(create)
    create.add_argument("--output", metavar="FILE", help="write there instead")
    create.add_argument("--update", action="store_true", help="replace an existing file")
    create.add_argument("--grow", action="store_true", help="with --update: take new findings in")
    show = commands.add_parser("show", help="list the entries and which are in use")
    add_subject_arguments(show)


def run(args: Namespace) -> int:
    """Carry out the sub-command."""
    env = dict(os.environ)
    with Repository.discover(os.getcwd(), env) as repository:
        subject = subject_of(repository, args)
        checked = checks.examine(subject, (), CheckRequest(env, repository, everything=True))
        if args.action == "show":
            return _show(subject, checked)
        return _create(repository, subject, checked, args)


def _create(repository: Repository, subject: Snapshot, checked: Checked, args: Namespace) -> int:
    _require_complete(checked)
    name = checked.loaded.settings.baseline
    path = args.output or os.path.join(repository.folder, name)
    known = baseline.read(subject, name)
    if os.path.lexists(path) and not args.update:
        raise UsageError(
            f"{path} is there already",
            "--update drops what matches nothing any more, --update --grow takes new findings in",
        )
    grow = args.grow or not args.update
    findings = [item.finding for item in checked.report.findings]
    kept = findings if grow else _within(findings, known)
    _write(path, baseline.render(kept))
    left = len(findings) - len(kept)
    print(f"{len(kept)} findings written to {escape(path)}; commit it to have them accepted")
    if left:
        print(f"{left} findings are not in it and go on to block; --grow takes them in")
    return EXIT_PASS


def _require_complete(checked: Checked) -> None:
    """A baseline of half a check would accept too little without a word."""
    problems = [f"{item.what}: {item.why}" for item in checked.report.unavailable]
    if checked.report.internal:
        problems.append("a rule of attngate crashed")
    for problem in problems:
        print(f"attngate: not in the baseline, could not check {escape(problem)}", file=sys.stderr)


def _within(findings: list[Finding], known: Counter[str]) -> list[Finding]:
    """The findings that the known baseline already accepts."""
    left = Counter(known)
    kept = []
    for finding in findings:
        if left[finding.fingerprint] > 0:
            left[finding.fingerprint] -= 1
            kept.append(finding)
    return kept


def _show(subject: Snapshot, checked: Checked) -> int:
    name = checked.loaded.settings.baseline
    rows = baseline.rows(subject, name)
    if not rows:
        print(f"{subject.subject} has no baseline ({escape(name)})")
        return EXIT_PASS
    present = Counter(item.finding.fingerprint for item in checked.report.findings)
    for row in rows:
        used = min(present[row["fingerprint"]], row["count"])
        print(escape(f"{_state(used, row['count']):<9} {_words(row)}"))
    unused = sum(row["count"] - min(present[row["fingerprint"]], row["count"]) for row in rows)
    print(
        f"{sum(row['count'] for row in rows)} accepted findings, {unused} of them not there any more"
    )
    return EXIT_PASS


def _state(used: int, count: int) -> str:
    if used == count:
        return "in use"
    return "unused" if used == 0 else f"{used} of {count}"


def _words(row: dict[str, Any]) -> str:
    where = row.get("path", "?") + (f" ({row['symbol']})" if row.get("symbol") else "")
    return f"{row['count']}x {row.get('code', '?')} {where}: {row.get('message', '')}"


def _write(path: str, data: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise CouldNotCheckError(f"cannot write {path}: {error.strerror or error}") from error
