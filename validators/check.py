"""The static check: a tree in, findings out.

Pure: it reads nothing but the snapshot and its options, so the same tree and options always give the
same result. A rule that crashes becomes a finding of its own, and the other rules still run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from attngate.validators.context import Context, Hit, SourceFile
from attngate.validators.memory import CallRecord, FileRecord, JudgeRecord, Record, Reuse
from attngate.validators.model import (
    MODE_GITLINK,
    CheckOptions,
    CheckResult,
    Finding,
    Location,
    Severity,
    display_path,
)
from attngate.validators.pins import pins_identity
from attngate.validators.registry import Rule, all_rules, internal_rule
from attngate.validators.scope import Scope
from attngate.validators.source import SOURCES, is_lfs_pointer, is_python, without_collector
from attngate.validators.suppress import suppressions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from attngate.validators.memory import Memory
    from attngate.validators.model import ContractCall, FileEntry, Snapshot
    from attngate.validators.source import Source
    from attngate.validators.suppress import Suppression

__all__ = ["CheckOptions", "CheckResult", "check"]

Thing = TypeVar("Thing")
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


def check(snapshot: Snapshot, options: CheckOptions, memory: Memory | None = None) -> CheckResult:
    """Run every rule over the Python files of a tree that are in scope.

    Args:
        snapshot: The tree.
        options: Scope, switched-off rules, and what is known about the components.
        memory: What earlier checks with the same options found out; it takes in what this one finds.
    """
    with without_collector():
        return _Check(snapshot, options, memory).result()


def context_of(snapshot: Snapshot, options: CheckOptions) -> Context:
    """What rules are given, for questions that are no rules."""
    files, _ = _read_files(snapshot, None)
    scope = Scope(options.include, options.exclude)
    return Context(snapshot, options, files, frozenset(filter(scope.holds, files)))


class _Check:
    """One check: what still holds of an earlier one is taken over, the rest is worked out."""

    def __init__(self, snapshot: Snapshot, options: CheckOptions, memory: Memory | None) -> None:
        self._memory = memory
        self.files, self._not_checked = _read_files(snapshot, memory)
        self._oids = {path: snapshot.files[file.key].oid for path, file in self.files.items()}
        self._pins = pins_identity(snapshot)
        self._reuse = (
            Reuse(memory, snapshot.tree, self.files, self._oids, self._pins) if memory else None
        )
        if memory is not None and options.target is not None:
            memory.tables.update(options.target.tables)
            options.target.tables = memory.tables
        self._scope = Scope(options.include, options.exclude)
        self._context = Context(snapshot, options, self.files, self._in_scope(), memory)
        self._records: dict[str, FileRecord] = {}

    def _in_scope(self) -> frozenset[str]:
        known = self._reuse.in_scope if self._reuse is not None else None
        return known if known is not None else frozenset(filter(self._scope.holds, self.files))

    def result(self) -> CheckResult:
        """Every finding, sorted, suppressed ones apart."""
        context, scope = self._context, self._scope
        per_file = [f for path in sorted(context.in_scope) for f in self._of_file(path)]
        judged = self._of_calls()
        about_calls = [f for record in judged.files.values() for f in record.findings]
        found = [*per_file, *about_calls, *_run_rules(context, _is_about_the_tree)]
        found = [f for f in found if self._counts(f)]
        internal = any(f.code == CRASHED for f in found)
        kept, suppressed, complaints = _suppress(context, found)
        if not internal:
            self._keep(judged)
        return CheckResult(
            findings=tuple(sorted([*kept, *complaints], key=_order)),
            suppressed=tuple(suppressed),
            calls=_sorted_calls(judged),
            inspected=len(context.in_scope),
            not_checked=tuple(entry for entry in self._not_checked if scope.holds(entry[0])),
            internal=internal,
        )

    def _counts(self, finding: Finding) -> bool:
        path = finding.location.path
        is_ours = path in self._context.in_scope or finding.code == CRASHED
        return is_ours or (path not in self.files and self._scope.holds(path))

    def _of_file(self, path: str) -> tuple[Finding, ...]:
        record = self._reuse.file(path) if self._reuse is not None else None
        if record is None:
            index = self._context.index
            index.used, index.read = set(), set()
            findings = tuple(_run_file_rules(self._context, self.files[path]))
            record = FileRecord(findings, tuple(index.used), tuple(index.read))
            self._changed()
        self._records[path] = record
        return record.findings

    def _of_calls(self) -> JudgeRecord:
        """What the judge of component calls says, file by file; only what may differ is judged."""
        known = self._reuse.judged() if self._reuse is not None else None
        if known is not None and not known[1]:
            return known[0]
        self._changed()
        judge = self._context.judge
        if known is not None:
            judge.earlier, judge.only = known[0], sorted(known[1])
        findings = _by_path(_run_rules(self._context, _is_about_calls), lambda f: f.location.path)
        calls = _by_path(_calls(self._context), lambda c: c.location.path)
        fresh = {
            path: CallRecord(
                tuple(findings.pop(path, ())), tuple(calls.get(path, ())), tuple(consulted)
            )
            for path, consulted in judge.consulted.items()
        }
        for path, rest in findings.items():  # a rule that crashed is told at no file of its own
            fresh[path] = CallRecord(tuple(rest), (), ())
        files = {p: r for p, r in known[0].files.items() if p not in known[1]} if known else {}
        return JudgeRecord(
            files | fresh,
            tuple(judge.watched.union(known[0].watched if known else ())),
            tuple(judge.exported),
            {path: tuple(words) for path, words in judge.local.items()},
        )

    def _changed(self) -> None:
        if self._memory is not None:
            self._memory.changed = True

    def _keep(self, judged: JudgeRecord) -> None:
        memory = self._memory
        if memory is None:
            return
        tree_id = self._context.snapshot.tree
        if memory.changed or tree_id not in memory.records:
            memory.keep(tree_id, Record(self._oids, self._pins, self._records, judged))
        for path, oid in self._oids.items():
            file = self.files[path]
            memory.facts.setdefault(oid, file.facts)
            symbols = file.symbols_seen
            if symbols is not None and oid not in memory.symbols:
                memory.symbols[oid] = symbols


def _by_path(things: Iterable[Thing], path_of: Callable[[Thing], str]) -> dict[str, list[Thing]]:
    found: dict[str, list[Thing]] = {}
    for thing in things:
        found.setdefault(path_of(thing), []).append(thing)
    return found


def _sorted_calls(judged: JudgeRecord) -> tuple[ContractCall, ...]:
    calls = [call for record in judged.files.values() for call in record.calls]
    where = [(c.location.path, c.location.line, c.location.column) for c in calls]
    return tuple(call for _, _, call in sorted(zip(where, range(len(calls)), calls, strict=True)))


def _is_about_calls(rule: Rule) -> bool:
    """True for the rules that report what the judge of component calls found."""
    return rule.over == "calls"


def _is_about_the_tree(rule: Rule) -> bool:
    return rule.over == "tree"


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
    marked = [path for path in sorted(context.in_scope) if context.files[path].facts.marked]
    by_path = {path: suppressions(context.files[path]) for path in marked}
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


def _read_files(
    snapshot: Snapshot, memory: Memory | None
) -> tuple[dict[str, SourceFile], list[tuple[str, str]]]:
    files: dict[str, SourceFile] = {}
    not_checked: list[tuple[str, str]] = []
    for key, entry in snapshot.files.items():
        if not entry.is_regular:
            _note_special(key, entry, not_checked)
            continue
        if not is_python(key):
            continue
        path = display_path(key)
        facts = memory.facts.get(entry.oid) if memory is not None else None
        if memory is not None and facts is not None:
            files[path] = _known_file(snapshot, path, key, entry, memory)
            continue
        raw = snapshot.read(entry.oid)
        if raw is None:
            not_checked.append((path, "its contents were not fetched (partial clone)"))
        elif is_lfs_pointer(raw):
            not_checked.append((path, "a git-lfs pointer: the contents are not in the commit"))
        else:
            files[path] = SourceFile.of(path, key, SOURCES.get(entry.oid, raw))
    return files, not_checked


def _known_file(
    snapshot: Snapshot, path: str, key: bytes, entry: FileEntry, memory: Memory
) -> SourceFile:
    """A file whose contents were seen before; they are read when something asks for them."""

    def load() -> Source:
        return SOURCES.get(entry.oid, snapshot.read(entry.oid) or b"")

    return SourceFile(path, key, load, memory.facts[entry.oid], memory.symbols.find(entry.oid))


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


def _run_rules(context: Context, is_wanted: Callable[[Rule], bool]) -> Iterator[Finding]:
    """Findings of rules that look at the tree as a whole."""
    for rule in all_rules().values():
        if rule.body is not None and rule.code not in context.options.ignore and is_wanted(rule):
            yield from _run(rule, context, None)


def _run_file_rules(context: Context, file: SourceFile) -> Iterator[Finding]:
    for rule in all_rules().values():
        if rule.body is None or rule.code in context.options.ignore or rule.over != "file":
            continue
        yield from _run(rule, context, file)


def _run(rule: Rule, context: Context, file: SourceFile | None) -> Iterator[Finding]:
    """The findings of one rule over one file or the tree, or the one that says it crashed."""
    assert rule.body is not None
    try:
        hits = list(rule.body(file, context) if file is not None else rule.body(context))
    except Exception as error:
        yield _crash(rule, file, error)
        return
    for hit in hits:
        if hit.location.path in context.in_scope or rule.over != "file":
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
