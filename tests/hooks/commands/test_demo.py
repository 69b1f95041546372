"""The demo ends with 0 only if each step did what it should, and leaves nothing behind."""

import argparse
import os
import tempfile
from pathlib import Path

import pytest

from attngate.hooks.commands import demo

ONLY_GIT = demo.Step("A commit", {}, (demo.Act("git commit --allow-empty -m Empty"),))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the demo makes its own; short, for the path of a socket."""
    with tempfile.TemporaryDirectory(prefix="agd") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def play(*steps: demo.Step, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(demo, "STEPS", steps)
    return demo.run(argparse.Namespace(keep=False))


def step(*acts: demo.Act, pushed: bool = False) -> demo.Step:
    return demo.Step("A step", {}, acts, pushed)


def test_the_whole_demo(temporary: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert demo.run(argparse.Namespace(keep=False)) == 0
    shown = capfd.readouterr().out
    assert "$ git push origin main" in shown
    assert "Every step did what it should" in shown
    assert not os.listdir(temporary)


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (step(demo.Act("true", refused=True)), "should have been refused"),
        (step(demo.Act("false")), "should have been accepted"),
        (step(demo.Act("echo one", says=("two",))), "should have said 'two'"),
        (step(demo.Act("git commit -q --allow-empty -m x"), pushed=True), "the remote has"),
        (
            step(demo.Act("git commit -q --allow-empty -m x && git push -q origin main")),
            "the remote",
        ),
    ],
)
def test_a_step_that_does_something_else_is_told(
    bad: demo.Step, complaint: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(demo.DemoError, match=complaint):
        play(ONLY_GIT, bad, monkeypatch=monkeypatch)
    assert not os.listdir(temporary)


def test_a_changed_work_tree_is_told(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(demo.DemoError, match="porcelain"):
        play(step(demo.Act("echo more > README.md")), monkeypatch=monkeypatch)


def test_nothing_of_the_user_reaches_the_demo(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("GIT_DIR", "ATTNGATE", "SKIP", "CI", "PRE_COMMIT", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, "/nowhere")
    assert play(step(demo.Act("env")), monkeypatch=monkeypatch) == 0
    assert "/nowhere" not in capfd.readouterr().out
