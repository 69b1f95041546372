"""What a run has to say, before anybody formats it.

A report is plain immutable data. What it calls established was established for the tree it names and
for nothing else; whatever was left out, reused, mixed or unavailable has its own place here, so that a
format cannot forget it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from attngate.validators.model import CallVerdict, Level, Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from attngate.gpu_runner.worker.wire import Measurement, Verdict
    from attngate.hooks.linters import LinterRun
    from attngate.validators.model import ContractCall, Finding


class Standing(str, Enum):
    """How a finding relates to what was there before."""

    NEW = "new"
    INHERITED = "inherited"
    MERGED = "from a merged side"
    BASELINED = "in the baseline"


class TargetState(str, Enum):
    """What is known about one target on one tree."""

    PASSED = "passed"
    REUSED = "passed, reused"
    FAILED = "failed"
    RUNNING = "not ready"
    COULD_NOT_CHECK = "could not check"
    UNTESTED = "untested"

    @property
    def is_established(self) -> bool:
        """True where every case that the target was held to has passed.

        A case that probes what the target does not declare may have been refused by the callable.
        """
        return self in (TargetState.PASSED, TargetState.REUSED)


class Policy(str, Enum):
    """Whether something that could not be checked blocks."""

    REFUSE = "refuse"
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Reported:
    """A finding with its standing."""

    finding: Finding
    standing: Standing


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Something that was asked for and could not be had.

    Attributes:
        what: The thing ("mypy", "target varlen").
        why: What is missing or wrong.
        advice: What to do about it.
        policy: Whether it blocks.
    """

    what: str
    why: str
    advice: str = ""
    policy: Policy = Policy.REFUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReport:
    """One target on one tree.

    Attributes:
        name: Name in the target table.
        callable: "module:attribute".
        suite: Name of the suite.
        device: Device of the run, "cpu" or "cuda".
        tier: Which cases were asked for.
        requires: Device that the target demands.
        state: See `TargetState`.
        reason: Why it is in that state, in one sentence.
        affected: True where the change touches the target's import closure.
        closure: How many files of the tree the verdict depends on.
        verdicts: One for each case that was run.
        left_out: (what, why) of what the suite did not plan.
        widened: True where a module outside the static closure was loaded, so that the verdict holds
            for the whole tree only.
        mixed: (path, installed path, sha256) of files that came from the installation.
        disclosures: Sentences that belong in every report of this run.
        job: Id of the job, "" where none was needed.
        seconds: How long the run took.
        log: Path of the job's log, "" where there is none.
    """

    name: str
    callable: str
    suite: str
    device: str
    tier: str
    requires: str
    state: TargetState
    reason: str = ""
    affected: bool = True
    closure: int = 0
    verdicts: tuple[Verdict, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    widened: bool = False
    mixed: tuple[tuple[str, str, str], ...] = ()
    disclosures: tuple[str, ...] = ()
    job: str = ""
    seconds: float = 0.0
    log: str = ""

    @property
    def failures(self) -> tuple[Verdict, ...]:
        """The verdicts that speak against the callable."""
        return tuple(verdict for verdict in self.verdicts if verdict.kind.is_failure)

    @property
    def counts(self) -> dict[str, int]:
        """Number of cases by verdict kind, most frequent first."""
        return dict(Counter(verdict.kind.value for verdict in self.verdicts).most_common())

    @property
    def worst(self) -> Measurement | None:
        """The measurement closest to its limit; None where nothing was measured."""
        measured = [m for verdict in self.verdicts for m in verdict.measurements]
        return max(measured, key=lambda m: m.worst, default=None)

    @property
    def level(self) -> Level:
        """How strongly the callable's numerics are established by this run."""
        return Level.NUMERICALLY_VALIDATED if self.state.is_established else Level.UNTESTED


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReport:
    """Everything about one tree.

    Attributes:
        subject: What the tree is, in a user's words.
        tree: Its object id.
        refs: Names under which it is pushed.
        scope: What was looked at, in words.
        inspected: Number of Python files that were.
        not_checked: (path, why) of files that could not be looked into.
        findings: All findings with their standing.
        suppressed: (finding, reason) that a comment in the source suppresses.
        calls: Calls of component entry points with their contract verdict.
        linters: What ruff and mypy did.
        targets: Numerical verdicts; None where the run did not ask for any.
        unavailable: What could not be checked.
        disclosures: What a reader has to know about this tree's check.
        internal: True where a rule crashed.
        statically_checked: False where the run did not look at the sources at all.
    """

    subject: str
    tree: str
    refs: tuple[str, ...] = ()
    scope: str = "every Python file"
    inspected: int = 0
    not_checked: tuple[tuple[str, str], ...] = ()
    findings: tuple[Reported, ...] = ()
    suppressed: tuple[tuple[Finding, str], ...] = ()
    calls: tuple[ContractCall, ...] = ()
    linters: tuple[LinterRun, ...] = ()
    targets: tuple[TargetReport, ...] | None = None
    unavailable: tuple[Unavailable, ...] = ()
    disclosures: tuple[str, ...] = ()
    internal: bool = False
    statically_checked: bool = True

    def standing(self, standing: Standing) -> list[Finding]:
        """The findings of one standing, in order."""
        return [item.finding for item in self.findings if item.standing is standing]

    def blocking(self, *, strict: bool) -> list[Finding]:
        """New findings that block: errors, and with `strict` warnings too."""
        levels = (Severity.ERROR, Severity.WARNING) if strict else (Severity.ERROR,)
        return [finding for finding in self.standing(Standing.NEW) if finding.severity in levels]


@dataclass(frozen=True, slots=True)
class Decision:
    """The exit code and why."""

    exit_code: int
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What one command has to say.

    Attributes:
        verb: The command.
        decision: Exit code and reasons.
        trees: One report for each distinct tree.
        disclosures: What holds for the whole run: skips, overrides, hooks that are absent.
        strict: True where warnings block.
        seconds: How long it took.
    """

    verb: str
    decision: Decision
    trees: tuple[TreeReport, ...] = ()
    disclosures: tuple[str, ...] = ()
    strict: bool = False
    seconds: float = field(default=0.0, compare=False)


def standings(
    findings: Iterable[Finding],
    parents: Sequence[Iterable[Finding]],
    baseline: Counter[str],
) -> tuple[tuple[Reported, ...], Counter[str]]:
    """Tell new findings from those that a parent shows or the baseline holds.

    Fingerprints are counted: a second copy of a known fault is new.

    Args:
        findings: Of the tree, in order.
        parents: Findings of each parent's tree, HEAD's first; empty where everything counts as new.
        baseline: How often each fingerprint is accepted.

    Returns:
        The findings with their standing, and the baseline entries that nothing used.
    """
    accepted = Counter(baseline)
    known = [Counter(finding.fingerprint for finding in parent) for parent in parents]
    reported = []
    for finding in findings:
        mark = finding.fingerprint
        before = [counter[mark] > 0 for counter in known]
        for counter in known:
            counter[mark] -= 1
        if accepted[mark] > 0:
            accepted[mark] -= 1
            standing = Standing.BASELINED
        elif any(before):
            standing = Standing.INHERITED if before[0] else Standing.MERGED
        else:
            standing = Standing.NEW
        reported.append(Reported(finding, standing))
    return tuple(reported), +accepted


def established(tree: TreeReport) -> list[str]:
    """What this run established about the tree, strongest claims worded no stronger than they are."""
    lines = []
    if tree.inspected and not tree.internal:
        known = sum(item.standing is not Standing.NEW for item in tree.findings)
        new = len(tree.standing(Standing.NEW))
        state = f"{new} new, {known} known findings" if tree.findings else "no findings"
        lines.append(f"{_files(tree.inspected)} inspected by attngate's rules: {state}")
    for verdict, level, origin, count in _call_groups(tree.calls):
        if verdict is CallVerdict.CONFORMS:
            lines.append(f"{_calls(count)} conform to {origin} ({level.value})")
    lines += [f"{run.tool}: clean ({run.version})" for run in tree.linters if run.status == "clean"]
    lines += [_passed(target) for target in tree.targets or () if target.state.is_established]
    return lines


def untested(tree: TreeReport) -> list[str]:
    """What this run did not establish about the tree, and why."""
    lines = []
    if not tree.statically_checked:
        lines.append("the sources: not part of this command (`attngate check`)")
    elif not tree.inspected:
        lines.append(f"0 files inspected ({tree.scope}): the static check says nothing here")
    for path, why in tree.not_checked:
        lines.append(f"{path}: {why}")
    for verdict, _level, _origin, count in _call_groups(tree.calls):
        if verdict is CallVerdict.UNKNOWN:
            lines.append(f"{_calls(count)} of component entry points: contract verdict unknown")
    lines += [
        f"{run.tool}: {run.message or run.status}"
        for run in tree.linters
        if run.status not in ("clean", "findings")
    ]
    return lines + _numerically_untested(tree)


def _numerically_untested(tree: TreeReport) -> list[str]:
    if tree.targets is None:
        return ["numerics: not part of this command (`attngate validate`, or the push)"]
    if not tree.targets:
        return ["numerics: no target is configured, so nothing was validated numerically"]
    lines = []
    for target in tree.targets:
        if not target.state.is_established:
            lines.append(f"target {target.name}: {target.state.value}: {target.reason}")
        lines += [f"target {target.name}: {what}: {why}" for what, why in target.left_out]
        refused = target.counts.get("unsupported", 0)
        if refused and target.state.is_established:
            lines.append(f"target {target.name}: {refused} undeclared cases that it refuses itself")
        if target.state.is_established and target.device == "cpu":
            lines.append(f"target {target.name}: behaviour on a GPU (validated on the CPU)")
    return lines


def _passed(target: TargetReport) -> str:
    passed = target.counts.get("passed", 0)
    how = "reused" if target.state is TargetState.REUSED else "fresh"
    worst = target.worst
    margin = (
        f", worst {worst.worst:.2f} of its limit ({worst.output}, {worst.rule})" if worst else ""
    )
    over = ", for this whole tree" if target.widened else ""
    return (
        f"target {target.name}: {passed} cases of {target.suite} ({target.tier} tier) passed on "
        f"{target.device} ({how}{margin}{over})"
    )


_Group = tuple[CallVerdict, Level, str, int]


def _call_groups(calls: Iterable[ContractCall]) -> list[_Group]:
    groups = Counter((call.verdict, call.level, call.origin) for call in calls)
    unknown = sum(n for (verdict, _, _), n in groups.items() if verdict is CallVerdict.UNKNOWN)
    known = [(*key, n) for key, n in groups.items() if key[0] is not CallVerdict.UNKNOWN]
    if unknown:
        known.append((CallVerdict.UNKNOWN, Level.UNTESTED, "", unknown))
    return known


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _calls(count: int) -> str:
    return f"{count} call{'s' * (count != 1)}"
