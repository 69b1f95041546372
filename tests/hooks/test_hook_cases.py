"""What a commit and a push look like from a hook, in real repositories.

Every case also asserts that the hook changed no byte, mode or time of the work tree or of `.git`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Lab

GOOD = "def ok(x):\n    return x\n"
BAD = "def broken(:\n    return\n"
ATTNGATE = str(Path(sys.executable).parent / "attngate")


# -- what is committed ---------------------------------------------------------------------------


def test_a_deleted_file_is_not_looked_for(lab: Lab) -> None:
    lab.new()
    lab.write("gone.py", GOOD)
    lab.commit("two")
    lab.hook("pre-commit")
    lab.git("rm", "-q", "gone.py")
    lab.git("commit", "-qm", "x")
    lab.passed()


def test_a_bad_file_that_the_commit_deletes_does_not_block(lab: Lab) -> None:
    lab.new()
    lab.write("bad.py", BAD)
    lab.commit("two")
    lab.hook("pre-commit")
    lab.git("rm", "-q", "bad.py")
    lab.git("commit", "-qm", "x")
    lab.passed()


def test_a_staged_file_that_is_deleted_on_disk_is_checked_and_stays_deleted(lab: Lab) -> None:
    lab.new()
    lab.hook("pre-commit")
    path = lab.write("n.py", BAD)
    lab.git("add", "n.py")
    path.unlink()
    lab.git("commit", "-qm", "x", fails=True)
    assert "n.py" in lab.refused().output
    assert not path.exists()


def test_a_renamed_and_edited_file_is_checked_under_its_new_name(lab: Lab) -> None:
    lab.new()
    lab.write("a.py", GOOD * 20)
    lab.commit("two")
    lab.hook("pre-commit")
    lab.git("mv", "a.py", "b.py")
    lab.git("commit", "-qm", "renamed")
    lab.passed()
    lab.git("mv", "b.py", "c.py")
    lab.write("c.py", GOOD * 20 + BAD)
    lab.git("add", "c.py")
    lab.git("commit", "-qm", "x", fails=True)
    assert "c.py" in lab.refused().output


def test_staged_content_outside_a_sparse_checkout_is_checked(lab: Lab) -> None:
    lab.new()
    lab.write("in/a.py", GOOD)
    lab.write("out/b.py", GOOD)
    lab.commit("two")
    lab.hook("pre-commit")
    lab.git("sparse-checkout", "set", "in")
    assert not (lab.repo / "out").exists()
    oid = lab.git("hash-object", "-w", "--stdin", stdin=BAD.encode())
    lab.git("update-index", "--cacheinfo", f"100644,{oid},out/b.py")
    lab.git("update-index", "--skip-worktree", "out/b.py")
    lab.git("commit", "-qm", "x", fails=True)
    assert "out/b.py" in lab.refused().output
    assert not (lab.repo / "out").exists()
    assert "S out/b.py" in lab.git("ls-files", "-t")


def test_a_sparse_index_is_expanded_without_being_rewritten(lab: Lab) -> None:
    lab.new()
    lab.write("in/a.py", GOOD)
    lab.write("out/deep/b.py", BAD)
    lab.commit("two")
    lab.git("sparse-checkout", "set", "--sparse-index", "in")
    lab.hook("pre-commit")
    lab.write("in/new.py", BAD)
    lab.git("add", "in/new.py")
    lab.git("commit", "-qm", "x", fails=True)
    assert "in/new.py" in lab.refused().output


@pytest.mark.parametrize("folder", [".", "sub"])
def test_git_dir_and_work_tree_on_the_command_line(lab: Lab, folder: str) -> None:
    repo = lab.new()
    (repo / "sub").mkdir()
    lab.hook("pre-commit")
    lab.write("sub/bad.py", BAD)
    apart = (f"--git-dir={repo}/.git", f"--work-tree={repo}")
    lab.git(*apart, "add", str(repo / "sub" / "bad.py"), cwd=repo / folder)
    lab.git(*apart, "commit", "-qm", "x", cwd=repo / folder, fails=True)
    assert "sub/bad.py" in lab.refused().output
    lab.write("sub/bad.py", GOOD)
    lab.git(*apart, "commit", "-qam", "x", cwd=repo / folder)
    lab.passed()


def test_relative_git_variables_of_a_shell_are_resolved_before_anything_else(lab: Lab) -> None:
    lab.new()
    lab.write("sub/bad.py", BAD)
    lab.git("add", "-A")
    variables = {"GIT_DIR": ".git", "GIT_WORK_TREE": ".", "GIT_INDEX_FILE": ".git/index"}
    run = lab.attngate("hook", "pre-commit", **variables)
    assert run.code == 1
    assert "sub/bad.py" in run.output


def test_a_bare_repository_with_a_work_tree(lab: Lab) -> None:
    lab.repo.mkdir(parents=True)
    lab.git("init", "-q", "--bare", "dots.git")
    apart = ("--git-dir=dots.git", "--work-tree=.")
    hooks = lab.repo / "dots.git" / "hooks"
    lab.hook("pre-commit", cwd=lab.repo / "dots.git")
    assert (hooks / "pre-commit").exists()
    lab.write("good.py", GOOD)
    lab.git(*apart, "add", "good.py")
    lab.git(*apart, "commit", "-qm", "x")
    lab.passed()
    lab.write("bad.py", BAD)
    lab.git(*apart, "add", "bad.py")
    lab.git(*apart, "commit", "-qm", "y", fails=True)
    lab.refused()


def test_a_commit_inside_a_submodule(lab: Lab) -> None:
    lab.new()
    other = lab.folder / "other"
    lab.git("clone", "-q", str(lab.repo), str(other), cwd=lab.folder)
    lab.git("submodule", "-q", "add", str(other), "sub")
    lab.hook("pre-commit", cwd=lab.repo / "sub")
    lab.write("sub/b.py", BAD)
    lab.git("add", "b.py", cwd=lab.repo / "sub")
    lab.git("commit", "-qm", "x", cwd=lab.repo / "sub", fails=True)
    assert "b.py" in lab.refused().output


def conflict(lab: Lab) -> None:
    """Leave a merge with one conflict, in base.py."""
    lab.new()
    lab.git("checkout", "-qb", "side")
    lab.write("base.py", GOOD + "a = 1\n")
    lab.write("other_side.py", GOOD)
    lab.commit("side")
    lab.git("checkout", "-q", "main")
    lab.write("base.py", GOOD + "a = 2\n")
    lab.commit("main")
    lab.git("merge", "side", fails=True)


def test_a_merge_that_is_concluded_keeps_its_parents_and_unstaged_work(lab: Lab) -> None:
    conflict(lab)
    lab.hook("pre-commit")
    lab.write("base.py", GOOD + BAD)
    lab.git("add", "base.py")
    lab.git("commit", "-qm", "x", fails=True)
    lab.refused()
    lab.write("base.py", GOOD + "a = 3\n")
    lab.git("add", "base.py")
    lab.write("README", "unstaged\n")
    lab.git("commit", "-qm", "merged")
    lab.passed()
    assert len(lab.git("rev-list", "--parents", "-1", "HEAD").split()) == 3
    assert (lab.repo / "README").read_text() == "unstaged\n"


def test_an_unmerged_index_is_refused_by_path_and_keeps_its_stages(lab: Lab) -> None:
    conflict(lab)
    stages = lab.git("ls-files", "-u")
    run = lab.attngate("hook", "pre-commit")
    assert run.code == 1
    assert "base.py" in run.output
    assert lab.git("ls-files", "-u") == stages


def test_filters_that_fail_and_line_endings_do_not_touch_the_check(lab: Lab) -> None:
    lab.new()
    lab.git("config", "filter.locked.smudge", "false")
    lab.git("config", "filter.locked.clean", "cat")
    lab.git("config", "filter.locked.required", "true")
    lab.write(".gitattributes", "*.enc filter=locked\nk.py filter=locked\n*.txt text eol=crlf\n")
    lab.write("a.enc", "secret\n")
    lab.write("k.py", GOOD)
    lab.hook("pre-commit")
    lab.git("add", "-A")
    lab.git("commit", "-qm", "x")
    lab.passed()
    lab.write("k.py", BAD)
    lab.git("add", "-A")
    lab.git("commit", "-qm", "y", fails=True)
    assert "k.py" in lab.refused().output


def test_carriage_returns_are_checked_as_committed_and_unstaged_ones_survive(lab: Lab) -> None:
    lab.new()
    lab.git("config", "core.autocrlf", "false")
    lab.write("crlf.py", GOOD.replace("\n", "\r\n"))
    lab.commit("crlf")
    lab.git("config", "core.autocrlf", "true")
    lab.hook("pre-commit")
    path = lab.write("crlf.py", GOOD.replace("\n", "\r\n") + "\r\n\r\n")
    lab.write("README", "two\n")
    lab.git("add", "README")
    lab.git("commit", "-qm", "x")
    lab.passed()
    assert path.read_bytes().endswith(b"\r\n\r\n\r\n")


def test_an_index_that_moves_during_the_check_is_refused(lab: Lab) -> None:
    lab.new()
    lab.write("a.py", GOOD)
    lab.git("add", "a.py")
    env = {**lab.env, "GATE_TEST_SLEEP": "2"}
    with subprocess.Popen(
        [ATTNGATE, "hook", "pre-commit"], cwd=lab.repo, env=env, stderr=subprocess.PIPE
    ) as hook:
        time.sleep(1)
        lab.write("late.py", GOOD)
        lab.git("add", "late.py")
        assert hook.stderr is not None
        words = hook.stderr.read()
    assert hook.returncode == 1
    assert b"index changed" in words


# -- what is pushed ------------------------------------------------------------------------------


def test_deleting_a_remote_branch_is_silent_and_free(lab: Lab) -> None:
    lab.new()
    lab.remote()
    lab.git("push", "-q", "origin", "main", "main:old", "main:older")
    lab.hook("pre-push")
    lab.git("push", "-q", "origin", ":old")
    assert lab.passed().output == ""


def test_a_deletion_does_not_hide_a_bad_ref_behind_it(lab: Lab) -> None:
    lab.new()
    lab.remote()
    lab.git("push", "-q", "origin", "main", "main:old")
    lab.hook("pre-push")
    lab.git("checkout", "-qb", "bad")
    lab.write("b.py", BAD)
    lab.commit("bad")
    lab.git("checkout", "-q", "main")
    lab.git("push", "-q", "origin", ":old", "bad", fails=True)
    assert "b.py" in lab.refused().output


def test_a_sha256_repository_commits_pushes_and_deletes(lab: Lab) -> None:
    lab.new("--object-format=sha256")
    lab.remote("--object-format=sha256")
    lab.hook("pre-commit", "pre-push")
    lab.write("pkg/__init__.py", "")
    lab.write("pkg/b.py", BAD)
    lab.git("add", "-A")
    lab.git("commit", "-qm", "x", fails=True)
    lab.refused()
    lab.write("pkg/b.py", GOOD)
    lab.git("add", "-A")
    lab.git("commit", "-qm", "x")
    lab.passed()
    lab.git("push", "-q", "origin", "main", "main:old")
    lab.passed()
    lab.git("push", "-q", "origin", ":old")
    lab.passed()
    lab.write("pkg/b.py", BAD)
    lab.commit("bad")
    lab.git("push", "-q", "origin", "main", fails=True)
    lab.refused()


def test_tags_are_peeled_and_a_tag_of_a_file_is_passed_over(lab: Lab) -> None:
    lab.new()
    lab.remote()
    lab.git("push", "-q", "origin", "main")
    lab.hook("pre-push")
    lab.git("tag", "-a", "v0", "-m", "good")
    lab.git("tag", "file", "HEAD:README")
    lab.git("push", "-q", "origin", "v0", "file")
    lab.passed()
    lab.git("checkout", "-q", "--detach")
    lab.write("b.py", BAD)
    lab.git("tag", "-a", "v1", "-m", "bad", lab.commit("bad"))
    lab.git("checkout", "-q", "main")
    lab.git("push", "-q", "origin", "v1", fails=True)
    assert "b.py" in lab.refused().output


def test_a_tag_of_a_tree_is_checked(lab: Lab) -> None:
    lab.new()
    lab.remote()
    lab.hook("pre-push")
    lab.write("b.py", BAD)
    lab.git("add", "b.py")
    lab.git("tag", "t", lab.git("write-tree"))
    lab.git("push", "-q", "origin", "t", fails=True)
    assert "b.py" in lab.refused().output


def test_refs_outside_the_usual_folders_are_checked(lab: Lab) -> None:
    lab.new()
    lab.remote()
    lab.hook("pre-push")
    lab.git("push", "-q", "origin", "HEAD:refs/for/main")
    lab.passed()
    lab.write("b.py", BAD)
    lab.commit("bad")
    lab.git("push", "-q", "origin", "HEAD:refs/for/next", fails=True)
    lab.refused()


def test_notes_are_no_source(lab: Lab) -> None:
    lab.new()
    lab.remote()
    lab.git("push", "-q", "origin", "main")
    lab.git("notes", "add", "-m", BAD)
    lab.hook("pre-push")
    lab.git("push", "-q", "origin", "refs/notes/commits")
    lab.passed()


def many_lines(lab: Lab) -> bytes:
    """A list of refs that is longer than a pipe holds."""
    oid = lab.git("rev-parse", "HEAD")
    zero = "0" * 40
    return "".join(
        f"refs/tags/{n:04d} {oid} refs/tags/{n:04d} {zero}\n" for n in range(1500)
    ).encode()


def test_fifteen_hundred_tags_in_one_push(lab: Lab) -> None:
    lab.new()
    lab.remote()
    oid = lab.git("rev-parse", "HEAD")
    refs = "".join(f"create refs/tags/t{n:04d} {oid}\n" for n in range(1500))
    lab.git("update-ref", "--stdin", stdin=refs.encode())
    # No watcher here: it would read the list itself.
    hook = lab.repo / ".git" / "hooks" / "pre-push"
    hook.write_text(f'#!/bin/sh\nexec "{ATTNGATE}" hook pre-push "$@"\n')
    hook.chmod(0o755)
    lab.git("push", "-q", "origin", "--tags")
    assert len(lab.git("ls-remote", "--tags", "origin").splitlines()) == 1500


@pytest.mark.parametrize(
    "variables", [{"ATTNGATE": "0"}, {"SKIP": "x,attngate-gate"}, {"GIT_DIR": "/nonexistent"}]
)
def test_the_list_of_refs_is_read_to_its_end_also_when_nothing_is_checked(
    lab: Lab, variables: dict[str, str]
) -> None:
    lab.new()
    lines = many_lines(lab)
    with subprocess.Popen(
        [ATTNGATE, "hook", "pre-push", "origin", "url"],
        cwd=lab.repo,
        env={**lab.env, **variables},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as hook:
        assert hook.stdin is not None
        hook.stdin.write(lines)  # raises where the reader is gone
        hook.stdin.close()
        assert hook.stderr is not None
        words = hook.stderr.read().splitlines()
    assert hook.returncode == ("GIT_DIR" in variables)
    assert len(words) >= 1


def test_a_line_that_nobody_understands_is_refused(lab: Lab) -> None:
    lab.new()
    run = lab.attngate("hook", "pre-push", "origin", "url", stdin=b"refs/heads/main what\n")
    assert run.code == 1
    assert "what" in run.output


# -- environment ---------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["/proc", "/dev/null", ""])
def test_a_home_that_cannot_be_written_costs_the_cache_only(lab: Lab, home: str) -> None:
    lab.new()
    variables = (
        {"HOME": home}
        if home
        else {"HOME": str(lab.folder / "absent"), "XDG_CACHE_HOME": "/proc/x"}
    )
    lab.write("a.py", GOOD)
    lab.git("add", "a.py")
    run = lab.attngate("hook", "pre-commit", **variables)
    assert run.code == 0
    assert run.output.count("not cached") == 1
    lab.write("a.py", BAD)
    lab.git("add", "a.py")
    assert lab.attngate("hook", "pre-commit", **variables).code == 1


def test_another_owner_is_refused_in_gits_own_words(lab: Lab) -> None:
    lab.new()
    lab.write("bad.py", BAD)
    lab.git("add", "bad.py")
    # Git's own switch for its tests: every repository looks like somebody else's.
    run = lab.attngate("hook", "pre-commit", GIT_TEST_ASSUME_DIFFERENT_OWNER="1")
    assert run.code == 1
    assert f"git config --global --add safe.directory {lab.repo}" in run.output
    assert "safe" not in (lab.home / ".gitconfig").read_text()


def test_no_repository_is_refused(lab: Lab) -> None:
    run = lab.attngate("hook", "pre-commit", cwd=lab.folder)
    assert run.code == 1
    assert "no git repository" in run.output


def test_git_is_found_through_its_own_variable(lab: Lab) -> None:
    lab.new()
    lab.write("bad.py", BAD)
    lab.git("add", "bad.py")
    tools = lab.folder / "tools"
    tools.mkdir()
    for name in ("sh", "readlink"):
        (tools / name).symlink_to(f"/bin/{name}")
    core = lab.git("--exec-path")
    run = lab.attngate("hook", "pre-commit", PATH=str(tools), GIT_EXEC_PATH=core)
    assert run.code == 1
    assert "bad.py" in run.output
    run = lab.attngate("hook", "pre-commit", PATH=str(tools))
    assert run.code == 1
    assert "git was not found" in run.output


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({"ATTNGATE": "0"}, 0),
        ({"SKIP": "attngate"}, 0),
        ({"SKIP": "ruff, attngate-check"}, 0),
        ({"SKIP": "attngate-gate"}, 1),
        ({"ATTNGATE": "0", "CI": "true"}, 1),
        ({"SKIP": "attngate", "CI": "1"}, 1),
    ],
)
def test_skipping_is_said_in_one_line_and_not_possible_in_ci(
    lab: Lab, variables: dict[str, str], code: int
) -> None:
    lab.new()
    lab.write("bad.py", BAD)
    lab.git("add", "bad.py")
    run = lab.attngate("hook", "pre-commit", **variables)
    assert run.code == code
    if code == 0:
        assert run.output.count("\n") == 1
        assert "skipped" in run.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_hook_at_once_with_nothing_left(lab: Lab, number: signal.Signals) -> None:
    lab.new()
    env = {**lab.env, "GATE_TEST_SLEEP": "60"}
    root = "/dev/shm" if os.path.isdir("/dev/shm") else lab.env["XDG_RUNTIME_DIR"]
    hook = subprocess.Popen(
        [ATTNGATE, "hook", "pre-commit"],
        cwd=lab.repo,
        env=env,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # Whoever runs the tests in the background may have had these signals ignored.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )
    deadline = time.monotonic() + 20
    while not any(f"-{hook.pid}-" in name for name in os.listdir(root)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(hook.pid, number)
    assert hook.wait(20) == 130
    assert not any(f"-{hook.pid}-" in name for name in os.listdir(root))
    with pytest.raises(ProcessLookupError):
        os.killpg(hook.pid, 0)
