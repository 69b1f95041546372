from __future__ import annotations

import json
import subprocess
import sys


def attngate(*args: str) -> subprocess.CompletedProcess[str]:
    code = "from attngate.hooks.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-I", "-c", code, *args], check=False, capture_output=True, text=True
    )


def test_lists_every_build_on_a_line() -> None:
    listed = attngate("contracts", "list")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [
        "metax-2",
        "upstream-2",
        "vllm-variant",
        "fa3",
    ]


def test_shows_a_build_with_where_and_when_it_was_seen() -> None:
    shown = attngate("contracts", "show", "metax-2").stdout
    assert "sinks (recorded, 2026-09-20, 2.6.3+metax3.8.2.2torch2.10, on MetaX C500)" in shown
    assert "refuses     out:" in shown
    assert "unrecorded  s_aux" in shown
    by_entry = json.loads(
        attngate("contracts", "show", "flash_attn_with_kvcache", "--format", "json").stdout
    )
    assert [build["id"] for build in by_entry] == ["metax-2", "upstream-2", "fa3"]


def test_an_unknown_contract_is_a_usage_error() -> None:
    unknown = attngate("contracts", "show", "fa9")
    assert unknown.returncode == 2
    assert "metax-2" in unknown.stderr
    assert attngate("contracts", "show").returncode == 2
