"""Hook files: in front of what was there, gone without a trace, never silently absent."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Lab

GOOD = "def ok(x):\n    return x\n"
BAD = "def broken(:\n    return\n"


def install(lab: Lab, *options: str, cwd: Path | None = None) -> str:
    run = lab.attngate("install", *options, cwd=cwd)
    assert run.code == 0, run.output
    return run.output


def hooks(lab: Lab) -> Path:
    folder = lab.repo / ".git" / "hooks"
    folder.mkdir(exist_ok=True)
    return folder


def earlier(lab: Lab, name: str, body: str) -> Path:
    path = hooks(lab) / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def commit(lab: Lab, name: str, text: str, *, fails: bool, cwd: Path | None = None) -> str:
    path = (cwd or lab.repo) / name
    path.write_text(text)
    lab.git("add", name, cwd=cwd)
    done = lab.run("git", "commit", "-qm", "x", cwd=cwd)
    assert (done.returncode != 0) == fails, done
    return os.fsdecode(done.stdout + done.stderr)


def state(folder: Path) -> dict[str, tuple[int, bytes, int]]:
    return {
        path.name: (path.lstat().st_mode, path.read_bytes(), path.lstat().st_mtime_ns)
        for path in folder.iterdir()
    }


def test_installed_hooks_check_commits_and_pushes(lab: Lab) -> None:
    lab.new()
    lab.remote()
    install(lab)
    assert "b.py" in commit(lab, "b.py", BAD, fails=True)
    lab.git("commit", "-qm", "bad", "--no-verify")
    lab.git("push", "-q", "origin", "main", fails=True)
    commit(lab, "b.py", GOOD, fails=False)
    lab.git("push", "-q", "origin", "main")


def test_uninstall_puts_everything_back_bit_for_bit(lab: Lab) -> None:
    lab.new()
    earlier(lab, "pre-commit", "exit 0").chmod(0o750)
    earlier(lab, "pre-push", "cat >/dev/null").chmod(0o644)
    (hooks(lab) / "post-commit").symlink_to("pre-commit")
    before = state(hooks(lab))
    config = (lab.repo / ".git" / "config").read_bytes()
    install(lab)
    install(lab)
    assert state(hooks(lab)) != before
    assert lab.attngate("uninstall").code == 0
    assert state(hooks(lab)) == before
    assert (hooks(lab) / "post-commit").is_symlink()
    assert (lab.repo / ".git" / "config").read_bytes() == config
    assert "not installed" in lab.attngate("uninstall").output


def test_an_earlier_hook_runs_first_with_the_same_input_and_arguments(lab: Lab) -> None:
    lab.new()
    lab.remote()
    log = shlex.quote(str(lab.folder / "log"))
    earlier(lab, "pre-push", f'echo "$@" >>{log}; cat >>{log}')
    install(lab)
    lab.git("push", "-q", "origin", "main", "main:other")
    oid = lab.git("rev-parse", "HEAD")
    assert (lab.folder / "log").read_text().splitlines() == [
        f"origin {lab.folder}/remote.git",
        f"refs/heads/main {oid} refs/heads/main {'0' * 40}",
        f"refs/heads/main {oid} refs/heads/other {'0' * 40}",
    ]
    commit(lab, "b.py", GOOD, fails=False)
    (lab.repo / "b.py").write_text(BAD)
    lab.git("commit", "-qam", "bad", "--no-verify")
    lab.git("push", "-q", "origin", "main", fails=True)  # our part got the list as well


def test_an_earlier_hook_that_reads_nothing_of_a_long_list(lab: Lab) -> None:
    lab.new()
    lab.remote()
    earlier(lab, "pre-push", "exit 0")
    install(lab)
    oid = lab.git("rev-parse", "HEAD")
    refs = "".join(f"create refs/tags/t{n:04d} {oid}\n" for n in range(1500))
    lab.git("update-ref", "--stdin", stdin=refs.encode())
    lab.git("push", "-q", "origin", "--tags")


@pytest.mark.parametrize("name", ["pre-commit", "pre-push"])
def test_an_earlier_hook_that_refuses_is_obeyed(lab: Lab, name: str) -> None:
    lab.new()
    lab.remote()
    earlier(lab, name, "exit 3")
    install(lab)
    if name == "pre-commit":
        commit(lab, "g.py", GOOD, fails=True)
    else:
        lab.git("push", "-q", "origin", "main", fails=True)


def test_a_hook_that_git_would_not_run_is_kept_but_not_run(lab: Lab) -> None:
    lab.new()
    earlier(lab, "pre-commit", "exit 3").chmod(0o644)
    install(lab)
    commit(lab, "g.py", GOOD, fails=False)


def test_only_the_hooks_asked_for(lab: Lab) -> None:
    lab.new()
    before = set(os.listdir(hooks(lab)))
    install(lab, "--hooks", "pre-push")
    assert set(os.listdir(hooks(lab))) - before == {"pre-push"}
    run = lab.attngate("install", "--hooks", "pre-rebase")
    assert run.code == 2
    assert "pre-push" in run.output


def test_a_linked_worktree_installs_for_all_and_is_checked(lab: Lab) -> None:
    lab.new()
    lab.git("worktree", "add", "-q", str(lab.folder / "wt"), "-b", "feat")
    install(lab, cwd=lab.folder / "wt")
    assert (hooks(lab) / "pre-commit").exists()
    commit(lab, "b.py", BAD, fails=True, cwd=lab.folder / "wt")
    commit(lab, "b.py", BAD, fails=True)


def test_a_hooks_path_of_this_repository_is_used(lab: Lab) -> None:
    lab.new()
    lab.git("config", "core.hooksPath", ".githooks")
    (lab.repo / "sub").mkdir()
    install(lab, cwd=lab.repo / "sub")
    assert (lab.repo / ".githooks" / "pre-commit").exists()
    assert not (hooks(lab) / "pre-commit").exists()
    commit(lab, "b.py", BAD, fails=True)


@pytest.mark.parametrize("scope", ["--global", "--local"])
def test_a_hooks_path_of_somebody_elses_is_refused_with_both_ways_out(lab: Lab, scope: str) -> None:
    lab.new()
    shared = lab.folder / "shared"
    shared.mkdir()
    lab.git("config", scope, "core.hooksPath", str(shared))
    run = lab.attngate("install")
    assert run.code == 2
    assert "--unset core.hooksPath" in run.output
    assert "--force" in run.output
    assert list(shared.iterdir()) == []
    install(lab, "--force")
    commit(lab, "b.py", BAD, fails=True)
    assert lab.attngate("uninstall").code == 0
    assert list(shared.iterdir()) == []


def without_interpreter(lab: Lab, name: str) -> None:
    path = hooks(lab) / name
    path.write_text(path.read_text().replace(sys.executable, "/gone/bin/python"))


@pytest.mark.parametrize("name", ["pre-commit", "pre-push"])
def test_without_its_interpreter_a_hook_asks_path_and_then_refuses(lab: Lab, name: str) -> None:
    lab.new()
    lab.remote()
    install(lab)
    without_interpreter(lab, name)
    command = ("commit", "-q", "--allow-empty", "-m", "x")
    if name == "pre-push":
        command = ("push", "-q", "origin", "main")
    bare = {
        "PATH": f"{os.path.dirname(lab.run('sh', '-c', 'command -v git').stdout.decode())}:/bin:/usr/bin"
    }
    done = lab.run("git", *command, **bare)
    assert done.returncode != 0
    assert b"attngate install" in done.stderr
    tools = f"{Path(sys.executable).parent}:{bare['PATH']}"
    assert lab.run("git", *command, PATH=tools).returncode == 0


def test_an_interpreter_that_lost_the_package_falls_through_too(lab: Lab) -> None:
    lab.new()
    install(lab)
    empty = lab.folder / "python"
    empty.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    empty.chmod(0o755)
    path = hooks(lab) / "pre-commit"
    path.write_text(path.read_text().replace(sys.executable, str(empty)))
    done = lab.run("git", "commit", "-q", "--allow-empty", "-m", "x", PATH="/usr/bin:/bin")
    assert done.returncode != 0
    assert b"neither" in done.stderr


@pytest.mark.parametrize("first", ["attngate", "pre-commit"])
def test_beside_pre_commit_in_either_order(lab: Lab, first: str) -> None:
    lab.new()
    lab.write(".pre-commit-config.yaml", "repos: []\n")
    lab.commit("configured")
    theirs = [
        str(Path(sys.executable).parent / "pre-commit"),
        "install",
        "--hook-type",
        "pre-commit",
    ]
    for which in (first, "pre-commit" if first == "attngate" else "attngate", "attngate"):
        if which == "attngate":
            install(lab)
        else:
            assert lab.run(*theirs).returncode == 0
    commit(lab, "b.py", BAD, fails=True)
    commit(lab, "b.py", GOOD, fails=False)
    assert lab.attngate("uninstall").code == 0
    text = (hooks(lab) / "pre-commit").read_text()
    assert "pre-commit.com" in text
    assert not list(hooks(lab).glob("*attngate*"))
    commit(lab, "c.py", BAD, fails=False)


def test_pre_commit_installed_before_and_again_after_us_runs_us_once(lab: Lab) -> None:
    lab.new()
    lab.write(".pre-commit-config.yaml", "repos: []\n")
    lab.commit("configured")
    theirs = [
        str(Path(sys.executable).parent / "pre-commit"),
        "install",
        "--hook-type",
        "pre-commit",
    ]
    assert lab.run(*theirs).returncode == 0
    install(lab)
    assert lab.run(*theirs).returncode == 0
    commit(lab, "b.py", BAD, fails=True)
    commit(lab, "b.py", GOOD, fails=False)
    assert lab.attngate("uninstall").code == 0
    assert not list(hooks(lab).glob("*attngate*"))
    commit(lab, "c.py", GOOD, fails=False)


@pytest.mark.parametrize(
    ("shared", "mask", "mode"),
    [
        ("", 0o022, 0o755),
        ("", 0o077, 0o700),
        ("", 0, 0o755),
        ("group", 0o077, 0o770),
        ("all", 0o077, 0o775),
    ],
)
def test_hook_files_follow_umask_and_shared_repository(
    lab: Lab, shared: str, mask: int, mode: int
) -> None:
    lab.new()
    if shared:
        lab.git("config", "core.sharedRepository", shared)
    before = os.umask(mask)
    try:
        install(lab)
    finally:
        os.umask(before)
    assert (hooks(lab) / "pre-commit").stat().st_mode & 0o777 == mode


def test_no_repository(lab: Lab) -> None:
    run = lab.attngate("install", cwd=lab.folder)
    assert run.code == 2
    assert "no git repository" in run.output


def test_the_hook_file_is_plain_shell(lab: Lab) -> None:
    lab.new()
    install(lab)
    for name in ("pre-commit", "pre-push", "post-commit"):
        subprocess.run(["sh", "-n", hooks(lab) / name], check=True)
