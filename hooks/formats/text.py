"""A run as text, for people: what blocks first, what was established and what was not last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.hooks import linters
from attngate.hooks.errors import EXIT_PASS
from attngate.hooks.report import Policy, Standing, TargetState, established, untested
from attngate.hooks.terminal import escape
from attngate.hooks.terminal import paint as _paint
from attngate.validators.model import CallVerdict, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.gpu_runner.worker.wire import Measurement, Verdict
    from attngate.hooks.report import RunReport, TargetReport, TreeReport, Unavailable
    from attngate.validators.model import ContractCall, Finding

_SHOWN_CASES = 5
_SHOWN_INHERITED = 5
_STATE_STYLES = {
    TargetState.PASSED: "green",
    TargetState.REUSED: "green",
    TargetState.FAILED: "red",
    TargetState.RUNNING: "yellow",
    TargetState.COULD_NOT_CHECK: "yellow",
    TargetState.UNTESTED: "dim",
}
_SEVERITY_STYLES = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "dim"}


def render(report: RunReport) -> bytes:
    """The whole report as plain text in UTF-8."""
    return Writer().full(report).encode("utf-8", "backslashreplace")


class Writer:
    """Text of a report.

    Args:
        colour: True to mark severities and states with terminal colours.
    """

    def __init__(self, *, colour: bool = False) -> None:
        self._colour = colour

    def full(self, report: RunReport) -> str:
        """Everything, with what was established and what stays untested at the end."""
        lines = [self._note(text) for text in report.disclosures]
        for tree in report.trees:
            lines += ["", *self._tree(tree)]
            lines += ["", *self._summary(tree)]
        lines += ["", *self._verdict(report)]
        return "\n".join(lines).strip("\n") + "\n"

    def short(self, report: RunReport) -> str:
        """What a hook prints: only what blocks or needs attention; "" where there is nothing."""
        lines = [self._note(text) for text in report.disclosures]
        failed = report.decision.exit_code != EXIT_PASS
        for tree in report.trees:
            if failed:
                lines += self._tree(tree)
                continue
            lines += [line for f in _worth_telling(tree) for line in self._finding(f)]
            lines += [line for item in tree.unavailable for line in self._unavailable(item)]
            lines += _nothing_inspected(tree)
        if failed:
            lines += ["", *self._verdict(report)]
        return "\n".join(lines).strip("\n") + "\n" if lines else ""

    def numbers(self, report: RunReport) -> str:
        """What a push that goes through established numerically, and what not; "" without targets."""
        if report.decision.exit_code != EXIT_PASS:
            return ""
        lines = []
        for tree in report.trees:
            if tree.targets:
                lines.append(self.paint(escape(f"attngate: {tree.subject}"), "bold"))
                lines += self._summary(tree)
        return "\n".join(lines) + "\n" if lines else ""

    def paint(self, text: str, style: str) -> str:
        """The text in a style where there is colour."""
        return _paint(text, style, colour=self._colour)

    def _note(self, text: str) -> str:
        return self.paint("note: ", "dim") + escape(text)

    def _tree(self, tree: TreeReport) -> Iterator[str]:
        refs = f" -> {', '.join(tree.refs)}" if tree.refs else ""
        count = "1 file" if tree.inspected == 1 else f"{tree.inspected} files"
        looked = f": {count} inspected" if tree.statically_checked else ""
        head = f"{tree.subject} (tree {tree.tree[:12]}){refs}{looked}"
        yield self.paint(escape(head), "bold") + f" ({escape(tree.scope)})"
        yield from _nothing_inspected(tree)
        for finding in tree.standing(Standing.NEW):
            yield from self._finding(finding)
        for standing in (Standing.INHERITED, Standing.MERGED, Standing.BASELINED):
            yield from self._known(tree, standing)
        for finding, reason in tree.suppressed:
            yield f"  suppressed {_place(finding)} {finding.code}: {escape(reason)}"
        yield from self._calls(tree)
        for run in tree.linters:
            if run.status != linters.NOT_CONFIGURED:
                yield f"  {run.tool}: {run.status}, {escape(run.version)} ({escape(run.program)})"
        for target in tree.targets or ():
            yield from self._target(target)
        for item in tree.unavailable:
            yield from self._unavailable(item)
        for text in tree.disclosures:
            yield "  " + self._note(text)

    def _finding(self, finding: Finding) -> Iterator[str]:
        severity = self.paint(finding.severity.value, _SEVERITY_STYLES[finding.severity])
        yield (
            f"  {_place(finding)}: {severity} {finding.code} {finding.name}: "
            f"{escape(finding.message)}"
        )
        if finding.line_text:
            yield f"      | {escape(finding.line_text)}"
        for label in ("expected", "observed"):
            if getattr(finding, label):
                yield f"      {label}: {escape(getattr(finding, label))}"
        if finding.origin:
            yield f"      by {escape(finding.origin)} ({finding.level.value})"
        if finding.advice:
            yield f"      {self.paint('->', 'bold')} {escape(finding.advice)}"

    def _known(self, tree: TreeReport, standing: Standing) -> Iterator[str]:
        findings = tree.standing(standing)
        if not findings:
            return
        yield f"  {len(findings)} {standing.value}, not blocking:"
        for finding in findings[:_SHOWN_INHERITED]:
            yield f"      {_place(finding)}: {finding.code} {escape(finding.message)}"
        if len(findings) > _SHOWN_INHERITED:
            yield f"      and {len(findings) - _SHOWN_INHERITED} more (--all shows them)"

    def _calls(self, tree: TreeReport) -> Iterator[str]:
        if not tree.calls:
            return
        counts = {v: sum(call.verdict is v for call in tree.calls) for v in CallVerdict}
        told = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
        yield f"  contract calls: {told}"
        for call in tree.calls:
            yield f"      {self._call(call)}"

    def _call(self, call: ContractCall) -> str:
        where = f"{call.location.path}:{call.location.line}"
        codes = f" [{', '.join(call.codes)}]" if call.codes else ""
        origin = f"; by {call.origin}" if call.origin else ""
        text = f"{where} {call.entry}: {call.verdict.value} ({call.level.value}{origin}): {call.reason}"
        return escape(text + codes)

    def _target(self, target: TargetReport) -> Iterator[str]:
        state = self.paint(target.state.value, _STATE_STYLES[target.state])
        counts = ", ".join(f"{count} {kind}" for kind, count in target.counts.items())
        yield (
            f"  target {escape(target.name)} ({escape(target.callable)}, suite {target.suite}, "
            f"{target.device}, {target.tier} tier): {state}"
        )
        if target.reason:
            yield f"      {escape(target.reason)}"
        if counts:
            yield f"      cases: {counts}; {target.seconds:.1f} s"
        failures = target.failures
        for verdict in failures[:_SHOWN_CASES]:
            yield from self._verdict_lines(verdict)
        if len(failures) > _SHOWN_CASES:
            yield f"      and {len(failures) - _SHOWN_CASES} more failing cases (--format json)"
        yield from _target_remarks(target)
        if failures and target.log:
            yield f"      log: {escape(target.log)}"

    def _verdict_lines(self, verdict: Verdict) -> Iterator[str]:
        kind = self.paint(verdict.kind.value, "red")
        yield f"      {kind} {escape(verdict.case)}: {escape(verdict.message)}"
        for measurement in verdict.measurements:
            if measurement.worst > 1.0 or measurement.nonfinite:
                yield f"          {escape(_measured(measurement))}"
        if verdict.advice:
            yield f"          -> {escape(verdict.advice)}"

    def _unavailable(self, item: Unavailable) -> Iterator[str]:
        style = "red" if item.policy is Policy.REFUSE else "yellow"
        head = self.paint("could not check", style)
        yield f"  {head} {escape(item.what)}: {escape(item.why)}"
        if item.advice:
            yield f"      -> {escape(item.advice)}"

    def _summary(self, tree: TreeReport) -> Iterator[str]:
        yield self.paint("  established", "bold")
        yield from (f"    + {escape(line)}" for line in established(tree) or ["nothing"])
        yield self.paint("  untested", "bold")
        yield from (f"    - {escape(line)}" for line in untested(tree))

    def _verdict(self, report: RunReport) -> Iterator[str]:
        code = report.decision.exit_code
        if code == EXIT_PASS:
            yield self.paint(f"attngate {report.verb}: nothing blocks", "green")
            return
        yield self.paint(f"attngate {report.verb}: refused (exit {code})", "red")
        yield from (f"  because {escape(reason)}" for reason in report.decision.reasons)


def _worth_telling(tree: TreeReport) -> list[Finding]:
    return [f for f in tree.standing(Standing.NEW) if f.severity is not Severity.NOTE]


def _nothing_inspected(tree: TreeReport) -> list[str]:
    if tree.inspected or not tree.statically_checked:
        return []
    return [
        f"  0 files inspected in {escape(tree.subject)} ({escape(tree.scope)}): nothing was checked"
    ]


def _place(finding: Finding) -> str:
    where = finding.location
    return escape(f"{where.path}:{where.line}:{where.column}")


def _measured(m: Measurement) -> str:
    where = f" at {m.position}" if m.position else ""
    bad = f", {m.nonfinite} not finite" if m.nonfinite else ""
    hint = f"; {m.hint}" if m.hint else ""
    return f"{m.output}: {m.worst:.3g} of the limit of {m.rule}, max abs {m.max_abs:.3g}{bad}{where}{hint}"


def _target_remarks(target: TargetReport) -> Iterator[str]:
    if target.widened:
        yield "      a module outside the static import closure was loaded: counts for this whole tree only"
    for path, place, digest in target.mixed:
        yield f"      mixed execution: {escape(path)} came from {escape(place)} (sha256 {digest[:12]})"
    yield from (f"      note: {escape(text)}" for text in target.disclosures)
