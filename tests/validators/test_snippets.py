from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from attngate.validators.check import check
from attngate.validators.registry import all_rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from attngate.validators.model import Snapshot

# Their findings need a mode, an installed component or a crash, and have tests of their own.
ELSEWHERE = {"ATT000", "ATT003", "ATT106"}


def test_finds_exactly_what_the_comments_expect(
    case: Any, make_snapshot: Callable[..., Snapshot], tmp_path: Path
) -> None:
    result = check(make_snapshot(case.files), case.options(tmp_path))
    expected = case.expected()
    found = sorted(
        (f.location.path, f.location.line, f.code, f.severity.value) for f in result.findings
    )
    assert [entry[:3] for entry in found] == [entry[:3] for entry in expected]
    for seen, wanted in zip(found, expected, strict=True):
        assert wanted[3] in ("", seen[3])


@pytest.mark.parametrize("code", sorted(set(all_rules()) - ELSEWHERE))
def test_every_rule_has_flagged_and_clean_code(code: str, all_cases: list[Any]) -> None:
    own = [case for case in all_cases if case.name.startswith(f"{code}:")]
    assert [case for case in own if any(entry[2] == code for entry in case.expected())]
    assert [case for case in own if not case.expected()]
