"""The static check: a tree in, findings out.

Pure: it reads nothing but the snapshot and its options, so the same tree and options always give the
same result. A rule that crashes becomes a finding of its own, and the other rules still run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.validators.context import Context, Hit, SourceFile
from attngate.validators.model import (
    MODE_GITLINK,
    CheckOptions,
    CheckResult,
    Finding,
    Location,
    Severity,
    display_path,
)
from attngate.validators.registry import Rule, all_rules, internal_rule
from attngate.validators.scope import Scope
from attngate.validators.source import SOURCES, is_lfs_pointer, is_python, without_collector
from attngate.validators.suppress import suppressions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.validators.model import ContractCall, FileEntry, Snapshot
    from attngate.validators.suppress import Suppression

__all__ = ["CheckOptions", "CheckResult", "check"]

CRASHED = "ATT000"
internal_rule(
    CRASHED,
    "rule-crashed",
    Severity.ERROR,
    """A rule of attngate itself failed on this file.

    Why:
        The result is incomplete: what that rule would have said about the file is not known. The
        fault is attngate's, not the file's, and the other rules still ran.

    Instead:
        Report it with the message of the finding. Until it is repaired the rule can be switched off
        by its code under `ignore` in `[tool.attngate]`.
    """,
)


UNUSED = "ATT002"
internal_rule(
    UNUSED,
    "bad-suppression",
    Severity.WARNING,
    """A suppressing comment that suppresses nothing, names no known code, or gives no reason.

    Why:
        A comment that outlives its finding hides the next one on that line. Without a reason nobody can
        tell later whether it may go, so a comment without one suppresses nothing.

    Instead:
        Write `# attngate: ignore[CODE] reason` on the line of the finding or alone above it, and delete
        it when the finding is gone.
    """,
)
_UNSUPPRESSIBLE = frozenset([CRASHED, UNUSED])


def check(snapshot: Snapshot, options: CheckOptions) -> CheckResult:
    """Run every rule over the Python files of a tree that are in scope.

    Args:
        snapshot: The tree.
        options: Scope, switched-off rules, and what is known about the components.
    """
    with without_collector():
        return _check(snapshot, options)


def _check(snapshot: Snapshot, options: CheckOptions) -> CheckResult:
    files, not_checked = _read_files(snapshot)
    scope = Scope(options.include, options.exclude)
    context = Context(snapshot, options, files, frozenset(p for p in files if scope.holds(p)))
    found = [f for f in _run_rules(context) if scope.holds(f.location.path) or f.code == CRASHED]
    kept, suppressed, complaints = _suppress(context, found)
    return CheckResult(
        findings=tuple(sorted([*kept, *complaints], key=_order)),
        suppressed=tuple(suppressed),
        calls=_calls(context),
        inspected=len(context.in_scope),
        not_checked=tuple(entry for entry in not_checked if scope.holds(entry[0])),
        internal=any(f.code == CRASHED for f in found),
    )


def _calls(context: Context) -> tuple[ContractCall, ...]:
    """Every judged call in scope; none where judging crashed, which the rules have reported."""
    try:
        judgements = context.judge.judgements
    except Exception:
        return ()
    return tuple(j.call for j in judgements if j.call.location.path in context.in_scope)


def _suppress(
    context: Context, found: list[Finding]
) -> tuple[list[Finding], list[tuple[Finding, str]], list[Finding]]:
    """Split findings into kept and suppressed, and complain about comments that do not do their work."""
    kept: list[Finding] = []
    suppressed: list[tuple[Finding, str]] = []
    by_path = {path: suppressions(context.files[path]) for path in sorted(context.in_scope)}
    used: set[tuple[str, int, str]] = set()
    for finding in found:
        path = finding.location.path
        cover = next((s for s in by_path.get(path, ()) if s.covers(finding)), None)
        if cover is None or finding.code in _UNSUPPRESSIBLE:
            kept.append(finding)
        else:
            suppressed.append((finding, cover.reason))
            used.add((path, cover.line, finding.code))
    undecided = {f.message.split()[1] for f in found if f.code == CRASHED} | context.options.ignore
    complaints = [
        finding
        for path, comments in by_path.items()
        for comment in comments
        for finding in _complaints(context, path, comment, used, undecided)
    ]
    return kept, suppressed, complaints if UNUSED not in context.options.ignore else []


def _complaints(
    context: Context,
    path: str,
    comment: Suppression,
    used: set[tuple[str, int, str]],
    undecided: frozenset[str] | set[str],
) -> Iterator[Finding]:
    rule, file = all_rules()[UNUSED], context.files[path]
    messages = [comment.problem] if comment.problem else []
    for code in () if comment.problem else comment.codes:
        if code not in all_rules() or code in _UNSUPPRESSIBLE:
            messages.append(f"{code} is no rule that can be suppressed")
        elif (path, comment.line, code) not in used and code not in undecided:
            messages.append(f"it suppresses no {code} here")
    for message in messages:
        advice = "Write `# attngate: ignore[CODE] reason`, or delete the comment."
        yield _finding(
            rule, Hit(file.at(comment.line), f"a suppressing comment: {message}", advice), context
        )


def _order(finding: Finding) -> tuple[str, int, int, str, str]:
    where = finding.location
    return where.path, where.line, where.column, finding.code, finding.message


def _read_files(snapshot: Snapshot) -> tuple[dict[str, SourceFile], list[tuple[str, str]]]:
    files: dict[str, SourceFile] = {}
    not_checked: list[tuple[str, str]] = []
    for key, entry in snapshot.files.items():
        if not entry.is_regular:
            _note_special(key, entry, not_checked)
            continue
        if not is_python(key):
            continue
        path = display_path(key)
        raw = snapshot.read(entry.oid)
        if raw is None:
            not_checked.append((path, "its contents were not fetched (partial clone)"))
        elif is_lfs_pointer(raw):
            not_checked.append((path, "a git-lfs pointer: the contents are not in the commit"))
        else:
            files[path] = SourceFile.of(path, key, SOURCES.get(entry.oid, raw))
    return files, not_checked


def _note_special(key: bytes, entry: FileEntry, not_checked: list[tuple[str, str]]) -> None:
    if entry.mode == MODE_GITLINK:
        not_checked.append(
            (display_path(key), "a submodule: its files belong to another repository")
        )
    elif is_python(key):
        not_checked.append(
            (
                display_path(key),
                "a symbolic link: only its target is checked, where that is in the tree",
            )
        )


def _run_rules(context: Context) -> Iterator[Finding]:
    for rule in all_rules().values():
        if rule.body is None or rule.code in context.options.ignore:
            continue
        if rule.over == "tree":
            yield from _run(rule, context, None)
        else:
            for path in sorted(context.in_scope):
                yield from _run(rule, context, context.files[path])


def _run(rule: Rule, context: Context, file: SourceFile | None) -> Iterator[Finding]:
    """The findings of one rule over one file or the tree, or the one that says it crashed."""
    assert rule.body is not None
    try:
        hits = list(rule.body(file, context) if file is not None else rule.body(context))
    except Exception as error:
        yield _crash(rule, file, error)
        return
    for hit in hits:
        if hit.location.path in context.in_scope or rule.over == "tree":
            yield _finding(rule, hit, context)


def _finding(rule: Rule, hit: Hit, context: Context) -> Finding:
    file = context.files.get(hit.location.path)
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=hit.severity or rule.severity,
        location=hit.location,
        message=hit.message,
        advice=hit.advice,
        expected=hit.expected,
        observed=hit.observed,
        origin=hit.origin,
        level=hit.level,
        kind=hit.kind,
        line_text=file.source.line(hit.location.line) if file is not None else "",
    )


def _crash(rule: Rule, file: SourceFile | None, error: Exception) -> Finding:
    where = file.path if file is not None else "."
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = (
        f" at {frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame is not None else ""
    )
    crashed = all_rules()[CRASHED]
    return Finding(
        code=CRASHED,
        name=crashed.name,
        severity=crashed.severity,
        location=Location(where, 1),
        message=f"rule {rule.code} {rule.name} crashed: {type(error).__name__}: {error}",
        advice="This is a fault of attngate: please report it with this message.",
        observed=place.strip(),
    )
