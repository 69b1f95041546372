from __future__ import annotations

import json
import subprocess
import sys


def attngate(*args: str) -> subprocess.CompletedProcess[str]:
    code = "from attngate.hooks.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-I", "-c", code, *args], check=False, capture_output=True, text=True
    )


def test_explains_a_rule_by_code_or_name() -> None:
    by_code = attngate("explain", "att104")
    assert by_code.returncode == 0
    assert by_code.stdout.startswith("ATT104 unpacked-returns (error)\n")
    assert "\nWhy\n  " in by_code.stdout
    assert "\nInstead\n  " in by_code.stdout
    assert attngate("explain", "unpacked-returns").stdout == by_code.stdout


def test_explains_every_rule_as_data() -> None:
    rules = json.loads(attngate("explain", "--all", "--format", "json").stdout)
    codes = [rule["code"] for rule in rules]
    assert codes == sorted(codes)
    assert {"ATT000", "ATT001", "ATT002", "ATT003", "ATT101", "ATT106"} <= set(codes)
    assert all(rule["summary"] and rule["why"] and rule["instead"] for rule in rules)


def test_an_unknown_rule_names_the_closest() -> None:
    unknown = attngate("explain", "unpacked-return")
    assert unknown.returncode == 2
    assert "there is no rule unpacked-return" in unknown.stderr
    assert "unpacked-returns" in unknown.stderr
    none = attngate("explain")
    assert none.returncode == 2
    assert "ATT101" in none.stderr
