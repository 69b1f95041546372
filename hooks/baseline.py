"""The adoption baseline: findings that were there when attngate came, by fingerprint.

A fingerprint has no line number, so a baseline survives edits elsewhere in a file. Each entry also
says in words what it stands for; only the fingerprint and how often it occurs count.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from attngate.hooks.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attngate.validators.model import Finding, Snapshot

VERSION = 1


def read(snapshot: Snapshot, path: str) -> Counter[str]:
    """How often the tree's baseline accepts each fingerprint; empty where there is no such file.

    Raises:
        UsageError: The file is there and cannot be understood.
    """
    return Counter({row["fingerprint"]: row["count"] for row in rows(snapshot, path)})


def rows(snapshot: Snapshot, path: str) -> list[dict[str, Any]]:
    """The entries of the tree's baseline, each with `fingerprint`, `count` and words.

    Raises:
        UsageError: The file is there and cannot be understood.
    """
    raw = snapshot.blob(path.encode("utf-8", "surrogateescape"))
    if raw is None:
        return []
    try:
        data = json.loads(raw)
        found = _entries(data)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the baseline {path} of {snapshot.subject} cannot be read: {error!r}",
            "write it anew: attngate baseline create",
        ) from None
    return found


def _entries(data: dict[str, Any]) -> list[dict[str, Any]]:
    if data["version"] != VERSION:
        raise ValueError(f"version {data['version']!r}, this attngate reads {VERSION}")
    found: list[dict[str, Any]] = data["findings"]
    for row in found:
        if not isinstance(row["fingerprint"], str) or not isinstance(row["count"], int):
            raise TypeError(f"entry {row!r}")
    return found


def render(findings: Iterable[Finding]) -> bytes:
    """A baseline file that accepts these findings; stable, so that its changes read well."""
    counted: dict[str, dict[str, Any]] = {}
    for finding in findings:
        row = counted.setdefault(
            finding.fingerprint,
            {
                "fingerprint": finding.fingerprint,
                "count": 0,
                "code": finding.code,
                "path": finding.location.path.encode("utf-8", "backslashreplace").decode(),
                "symbol": finding.location.symbol,
                "message": finding.message,
            },
        )
        row["count"] += 1
    order = sorted(counted.values(), key=lambda r: (r["path"], r["code"], r["fingerprint"]))
    return json.dumps({"version": VERSION, "findings": order}, indent=1).encode() + b"\n"
