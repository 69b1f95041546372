"""What a hook tells git: go on, stop, interrupted; and what it leaves to the check behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from attngate.hooks import cli
from attngate.hooks.commands import check, gate, hook, submit
from attngate.hooks.errors import CouldNotCheckError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conftest import Lab

    from attngate.hooks.git import Repository


@pytest.fixture
def inside(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """The process stands in a repository, as a hook does."""
    lab.new()
    monkeypatch.chdir(lab.repo)
    for name in ("ATTNGATE", "SKIP", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(lab.home))
    monkeypatch.setenv("XDG_STATE_HOME", str(lab.folder / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(lab.folder / "cache"))
    return lab


@pytest.mark.parametrize(("code", "told"), [(0, 0), (1, 1), (130, 130), (2, 1), (3, 1), (4, 1)])
def test_git_is_told_one_of_three_codes_and_the_user_the_exact_one(
    inside: Lab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    told: int,
) -> None:
    monkeypatch.setattr(check, "run_hook", lambda repository, env: code)
    assert cli.guarded(["hook", "pre-commit"]) == told
    assert (f"exit code {code}" in capsys.readouterr().err) == (code in (2, 3, 4))


def test_an_error_behind_the_hook_refuses(
    inside: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(repository: Repository, env: Mapping[str, str]) -> int:
        raise CouldNotCheckError("no room in /x", "free some")

    monkeypatch.setattr(check, "run_hook", fail)
    assert cli.guarded(["hook", "pre-commit"]) == 1
    words = capsys.readouterr().err
    assert "no room in /x" in words
    assert "exit code 4 (could not check" in words


def test_a_bug_behind_the_hook_refuses_and_is_logged(
    inside: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(check, "run_hook", lambda repository: 0)
    assert cli.guarded(["hook", "pre-commit"]) == 1
    assert "details in" in capsys.readouterr().err


def test_an_interruption_passes_through(inside: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(repository: Repository, env: Mapping[str, str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "run_hook", interrupt)
    assert cli.guarded(["hook", "pre-commit"]) == 130


def test_a_push_of_nothing_asks_nobody(inside: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_drain", lambda: b"")
    monkeypatch.setattr(gate, "run_hook", lambda repository, push, env: 1)
    assert cli.guarded(["hook", "pre-push", "origin", "url"]) == 0


def test_a_push_reaches_the_gate_with_its_refs(
    inside: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    oid = inside.git("rev-parse", "HEAD")
    seen = []
    monkeypatch.setattr(hook, "_drain", f"main {oid} refs/heads/main {'0' * 40}\n".encode)
    monkeypatch.setattr(gate, "run_hook", lambda repository, push, env: seen.append(push) or 0)
    assert cli.guarded(["hook", "pre-push", "origin", "url"]) == 0
    assert [ref.commit for ref in seen[0].refs] == [oid]


@pytest.mark.parametrize("rebasing", [True, False])
def test_a_new_commit_is_handed_over_unless_a_rebase_replays_it(
    inside: Lab, monkeypatch: pytest.MonkeyPatch, rebasing: bool
) -> None:
    if rebasing:
        (inside.repo / ".git" / "rebase-merge").mkdir()
    calls = []
    monkeypatch.setattr(submit, "run_hook", lambda repository, env: calls.append(1) or 4)
    assert cli.guarded(["hook", "post-commit"]) == 0
    assert len(calls) == (not rebasing)


@pytest.mark.parametrize("arguments", [["hook"], ["hook", "pre-rebase"]])
def test_an_unknown_hook_is_a_usage_error(arguments: list[str]) -> None:
    assert cli.guarded(arguments) == 2


@pytest.mark.parametrize(
    ("value", "is_ci"), [("true", True), ("1", True), ("", False), ("0", False), ("false", False)]
)
def test_what_counts_as_ci(value: str, is_ci: bool) -> None:
    assert hook.is_ci({"CI": value}) is is_ci
