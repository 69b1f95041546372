"""A run as JSON, for programs. `format_version` rises when a field changes its meaning or goes away."""

from __future__ import annotations

import base64
import json
import os
from typing import TYPE_CHECKING, Any

from attngate.hooks.report import established, untested
from attngate.hooks.version import own_version

if TYPE_CHECKING:
    from attngate.hooks.linters import LinterRun
    from attngate.hooks.report import RunReport, TargetReport, TreeReport
    from attngate.validators.model import ContractCall, Finding, Location

FORMAT_VERSION = 1


def render(report: RunReport) -> bytes:
    """The report as one JSON object in UTF-8, with a line feed at its end.

    Paths that are not UTF-8 are shown with escapes and carry a `path_base64` twin of their bytes.
    """
    data = {
        "format_version": FORMAT_VERSION,
        "attngate": own_version(),
        "verb": report.verb,
        "exit_code": report.decision.exit_code,
        "reasons": list(report.decision.reasons),
        "strict": report.strict,
        "seconds": round(report.seconds, 3),
        "disclosures": list(report.disclosures),
        "trees": [_tree(tree) for tree in report.trees],
    }
    text = json.dumps(_clean(data), indent=2, allow_nan=False, ensure_ascii=False)
    return text.encode() + b"\n"


def _tree(tree: TreeReport) -> dict[str, Any]:
    return {
        "subject": tree.subject,
        "tree": tree.tree,
        "refs": list(tree.refs),
        "scope": tree.scope,
        "statically_checked": tree.statically_checked,
        "inspected": tree.inspected,
        "not_checked": [{**_path(path), "reason": why} for path, why in tree.not_checked],
        "findings": [
            {**_finding(item.finding), "standing": item.standing.value} for item in tree.findings
        ],
        "suppressed": [{**_finding(f), "reason": why} for f, why in tree.suppressed],
        "calls": [_call(call) for call in tree.calls],
        "linters": [_linter(run) for run in tree.linters],
        "targets": None if tree.targets is None else [_target(t) for t in tree.targets],
        "could_not_check": [
            {"what": u.what, "reason": u.why, "advice": u.advice, "policy": u.policy.value}
            for u in tree.unavailable
        ],
        "disclosures": list(tree.disclosures),
        "established": established(tree),
        "untested": untested(tree),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        **_location(finding.location),
        "message": finding.message,
        "advice": finding.advice,
        "expected": finding.expected,
        "observed": finding.observed,
        "origin": finding.origin,
        "level": finding.level.value,
        "kind": finding.kind.value,
        "fingerprint": finding.fingerprint,
    }


def _location(location: Location) -> dict[str, Any]:
    return {
        **_path(location.path),
        "line": location.line,
        "column": location.column,
        "end_line": location.end_line,
        "symbol": location.symbol,
    }


def _call(call: ContractCall) -> dict[str, Any]:
    return {
        **_location(call.location),
        "entry": call.entry,
        "callee": call.callee,
        "verdict": call.verdict.value,
        "reason": call.reason,
        "origin": call.origin,
        "level": call.level.value,
        "codes": list(call.codes),
    }


def _linter(run: LinterRun) -> dict[str, Any]:
    return {
        "tool": run.tool,
        "status": run.status,
        "program": run.program,
        "version": run.version,
        "configured_by": run.configured_by,
        "message": run.message,
    }


def _target(target: TargetReport) -> dict[str, Any]:
    return {
        "name": target.name,
        "callable": target.callable,
        "suite": target.suite,
        "device": target.device,
        "requires": target.requires,
        "tier": target.tier,
        "state": target.state.value,
        "level": target.level.value,
        "reason": target.reason,
        "affected": target.affected,
        "closure": target.closure,
        "counts": target.counts,
        "verdicts": [verdict.to_json() for verdict in target.verdicts],
        "left_out": [{"what": what, "reason": why} for what, why in target.left_out],
        "widened": target.widened,
        "mixed": [
            {"path": path, "installed": place, "sha256": digest}
            for path, place, digest in target.mixed
        ],
        "disclosures": list(target.disclosures),
        "job": target.job,
        "seconds": round(target.seconds, 3),
        "log": target.log,
    }


def _path(path: str) -> dict[str, str]:
    raw = os.fsencode(path)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"path": _utf8(path), "path_base64": base64.b64encode(raw).decode("ascii")}
    return {"path": path}


def _utf8(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _clean(value: Any) -> Any:
    """The same data with every text valid UTF-8 (an undecodable byte may lie in a message too)."""
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value
