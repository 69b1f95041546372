"""A remembered result holds for exactly what it was made from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from attngate.hooks import fast
from attngate.hooks.git import Repository

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Lab

ATTNGATE = str(Path(sys.executable).parent / "attngate")


def key(lab: Lab, **variables: str) -> str:
    with Repository.discover(str(lab.repo), {**lab.env, **variables}) as repository:
        return fast.key_of(repository, repository.index_state())


def test_the_key_is_stable(lab: Lab) -> None:
    lab.new()
    assert key(lab) == key(lab)
    (lab.repo / "README").write_text("unstaged\n")
    assert key(lab) == key(lab, TERM="dumb")


def stage(lab: Lab) -> None:
    lab.write("README", "two\n")
    lab.git("add", "README")


def announce(lab: Lab) -> None:
    lab.write("n.py", "")
    lab.git("add", "-N", "n.py")


def make_executable(lab: Lab) -> None:
    lab.git("update-index", "--chmod=+x", "README")


def move_head(lab: Lab) -> None:
    tree = lab.git(
        "commit-tree", lab.git("hash-object", "-t", "tree", "-w", "/dev/null"), "-m", "x"
    )
    lab.git("update-ref", "HEAD", tree)


def merge(lab: Lab) -> None:
    empty = lab.git("hash-object", "-t", "tree", "-w", "/dev/null")
    other = lab.git("commit-tree", empty, "-m", "x")
    (lab.repo / ".git" / "MERGE_HEAD").write_text(other + "\n")


def rebase(lab: Lab) -> None:
    (lab.repo / ".git" / "rebase-merge").mkdir()


def configure(lab: Lab) -> None:
    lab.git("config", "core.whitespace", "-trailing-space")


def add_push_hook(lab: Lab) -> None:
    (lab.repo / ".git" / "hooks").mkdir(exist_ok=True)
    (lab.repo / ".git" / "hooks" / "pre-push").write_text("#!/bin/sh\n")


@pytest.mark.parametrize(
    "change",
    [stage, announce, make_executable, move_head, merge, rebase, configure, add_push_hook],
)
def test_whatever_could_change_the_result_changes_the_key(
    lab: Lab, change: Callable[[Lab], None]
) -> None:
    lab.new()
    before = key(lab)
    change(lab)
    assert key(lab) != before


@pytest.mark.parametrize("name", ["ATTNGATE_IGNORE", "CI", "SKIP", "PATH", "GIT_CONFIG_PARAMETERS"])
def test_so_do_variables(lab: Lab, name: str) -> None:
    lab.new()
    value = os.environ["PATH"] + ":/other" if name == "PATH" else "'a.b=c'"
    assert key(lab, **{name: value}) != key(lab)


def test_another_version_of_the_tool_has_another_digest(tmp_path: Path) -> None:
    rows: list[bytes] = []
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.py").write_text("1")
    fast._list_files(str(tmp_path), rows)
    (tmp_path / "rules" / "a.py").write_text("22")
    changed: list[bytes] = []
    fast._list_files(str(tmp_path), changed)
    assert rows != changed
    assert len(rows) == 1


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_a_record_is_recalled_with_its_notes(env: dict[str, str]) -> None:
    assert fast.recall("k", env) is None
    assert fast.store("k", ["/etc/passwd", "/nonexistent"], "one note", env)
    assert fast.recall("k", env) == "one note"
    assert fast.recall("other", env) is None


@pytest.mark.parametrize("how", ["edit", "remove", "appear"])
def test_a_depended_path_that_changes_ends_the_record(
    env: dict[str, str], tmp_path: Path, how: str
) -> None:
    path = tmp_path / "ruff"
    if how != "appear":
        path.write_text("1")
    fast.store("k", [str(path)], "", env)
    assert fast.recall("k", env) == ""
    if how == "remove":
        path.unlink()
    else:
        path.write_text("22")
    assert fast.recall("k", env) is None


def test_a_cut_off_altered_or_renamed_record_does_not_hold(env: dict[str, str]) -> None:
    fast.store("k", ["/etc/passwd"], "", env)
    folder = Path(fast.cache_folder(env))
    whole = (folder / "k").read_bytes()
    (folder / "renamed").write_bytes(whole)
    assert fast.recall("renamed", env) is None
    for record in [whole[:n] for n in range(0, len(whole), 7)] + [
        whole.replace(b"passwd", b"shadow")
    ]:
        (folder / "k").write_bytes(record)
        assert fast.recall("k", env) is None


def test_the_cache_is_private_whatever_the_umask(env: dict[str, str], tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        fast.store("k", [], "", env)
    finally:
        os.umask(before)
    for path in [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0


def test_a_cache_that_others_can_write_is_not_used(
    env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    fast.store("k", [], "", env)
    Path(fast.cache_folder(env)).chmod(0o777)
    assert fast.recall("k", env) is None
    assert not fast.store("k", [], "", env)
    assert "not a private folder" in capsys.readouterr().err


@pytest.mark.parametrize("home", ["/proc", "/dev/null", "", "relative"])
def test_a_cache_that_cannot_be_made_is_one_warning(
    home: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not fast.store("k", [], "", {"HOME": home})
    assert capsys.readouterr().err.count("\n") == 1


def test_old_records_are_forgotten(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast, "_KEPT_RECORDS", 4)
    for n in range(12):
        fast.store(f"k{n}", [], "", env)
    assert len(os.listdir(fast.cache_folder(env))) <= 5
    assert fast.recall("k11", env) == ""


def test_a_result_is_not_remembered_when_the_index_moved_meanwhile(lab: Lab) -> None:
    lab.new()
    with Repository.discover(str(lab.repo), lab.env) as repository:
        started = fast.begin(repository, repository.index_state())
        stage(lab)
        fast.remember(repository, [])
        assert fast.recall(started, lab.env) is None
        started = fast.begin(repository, repository.index_state())
        fast.remember(repository, [])
        assert fast.recall(started, lab.env) == ""


def test_a_hit_loads_nothing_that_is_slow(lab: Lab) -> None:
    lab.new()
    code = (
        "import sys\nfrom attngate.hooks.cli import guarded\n"
        "before = set(sys.modules)\n"
        "assert guarded(['hook', 'pre-commit']) == 0\n"
        "print(*sorted(set(sys.modules)))"
    )
    env = {**lab.env, "XDG_CACHE_HOME": str(lab.folder / "cache")}
    with Repository.discover(str(lab.repo), env) as repository:
        assert fast.store(fast.key_of(repository, repository.index_state()), [], "", env)
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        cwd=lab.repo,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    slow = {
        "argparse",
        "dataclasses",
        "msgspec",
        "git",
        "json",
        "logging",
        "asyncio",
        "torch",
        "typing_extensions",
    }
    assert not loaded & slow
    assert "attngate.hooks.snapshot" not in loaded
    assert not [name for name in loaded if name.startswith("attngate.validators")]


def test_a_hit_is_silent_and_prints_what_was_noted(lab: Lab) -> None:
    lab.new()
    env = {**lab.env, "XDG_CACHE_HOME": str(lab.folder / "cache")}
    with Repository.discover(str(lab.repo), env) as repository:
        name = fast.key_of(repository, repository.index_state())
    for notes in ("", "attngate: a note"):
        fast.store(name, [], notes, env)
        done = subprocess.run(
            [ATTNGATE, "hook", "pre-commit"],
            cwd=lab.repo,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout, done.stderr.strip()) == (0, "", notes)
