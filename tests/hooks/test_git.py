"""The door to git: ids equal git's, environment resolved, nothing written."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from attngate.hooks.errors import RefusedError, UsageError
from attngate.hooks.git import (
    Repository,
    find_git,
    resolved_environment,
    tree_id,
    without_repository_variables,
)
from attngate.hooks.snapshot import tree_snapshot

if TYPE_CHECKING:
    from conftest import Lab


def opened(lab: Lab) -> Repository:
    return Repository.discover(str(lab.repo), lab.env)


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
def test_tree_ids_equal_gits_for_awkward_names_and_modes(lab: Lab, object_format: str) -> None:
    lab.new(f"--object-format={object_format}")
    names = [
        "a",
        "a.b",
        "a-b",
        "a/x",
        "a0",
        "lib/a/b",
        "lib/a.b",
        "lib/a",
        "é",
        "a b",
        "-x",
        "new\nline",
    ]
    dice = random.Random(7)
    for name in names:
        if not (lab.repo / name).exists() and not any(
            p.is_file() for p in (lab.repo / name).parents
        ):
            path = lab.write(name, dice.randbytes(dice.randrange(200)))
            path.chmod(dice.choice([0o644, 0o755]))
    (lab.repo / "link").symlink_to("a.b")
    lab.git("add", "-A")
    with opened(lab) as repository:
        snapshot = repository.index_snapshot()
    assert snapshot.tree == lab.git("write-tree")
    assert len(snapshot.files) >= 9


def test_the_empty_tree_has_gits_name(lab: Lab) -> None:
    lab.new()
    with opened(lab) as repository:
        assert repository.empty_tree() == lab.git("hash-object", "-t", "tree", "/dev/null")
        assert tree_id({}, "sha1") == repository.empty_tree()


def test_an_announced_file_is_no_part_of_the_tree_and_an_empty_one_is(lab: Lab) -> None:
    lab.new()
    lab.write("empty.py", "")
    lab.git("add", "empty.py")
    lab.write("later/announced.py", "")
    lab.git("add", "-N", "later/announced.py")
    with opened(lab) as repository:
        snapshot = repository.index_snapshot()
    assert b"empty.py" in snapshot.files
    assert b"later/announced.py" not in snapshot.files
    assert snapshot.tree == lab.git("write-tree")


def test_many_empty_files_beside_an_announced_one(lab: Lab) -> None:
    lab.new()
    for n in range(250):
        lab.write(f"p{n}/__init__.py", "")
    lab.git("add", "-A")
    lab.write("announced.py", "")
    lab.git("add", "-N", "announced.py")
    with opened(lab) as repository:
        assert repository.index_state().intent_to_add == {b"announced.py"}


def test_changed_paths_are_those_that_differ_from_every_parent(lab: Lab) -> None:
    lab.new()
    lab.git("checkout", "-qb", "side")
    lab.write("side.py", "")
    lab.commit("side")
    lab.git("checkout", "-q", "main")
    lab.write("main.py", "")
    lab.commit("main")
    lab.git("merge", "-q", "--no-commit", "side")
    lab.write("own.py", "")
    lab.git("add", "own.py")
    with opened(lab) as repository:
        assert repository.index_snapshot().changed == {b"own.py"}
        assert len(repository.merge_parents_trees()) == 2


def test_an_unborn_branch_has_no_base(lab: Lab) -> None:
    lab.repo.mkdir(parents=True)
    lab.git("init", "-q")
    lab.write("a.py", "")
    lab.git("add", "a.py")
    with opened(lab) as repository:
        assert repository.head_tree() is None
        assert repository.index_snapshot().changed is None


def test_paths_are_found_from_a_sub_folder_and_from_a_linked_worktree(lab: Lab) -> None:
    repo = lab.new()
    lab.git("worktree", "add", "-q", str(lab.folder / "wt"), "-b", "feat")
    (lab.folder / "wt" / "deep").mkdir()
    with Repository.discover(str(lab.folder / "wt" / "deep"), lab.env) as repository:
        assert repository.toplevel == str(lab.folder / "wt")
        assert repository.git_dir == str(repo / ".git" / "worktrees" / "wt")
        assert repository.common_dir == str(repo / ".git")
        assert repository.hooks_folder == str(repo / ".git" / "hooks")


def test_a_line_feed_in_the_repositorys_path(lab: Lab) -> None:
    lab.repo = lab.folder / "watched" / "line\nfeed"
    lab.new()
    with opened(lab) as repository:
        assert repository.toplevel == str(lab.repo)
        assert repository.index_snapshot().tree == lab.git("write-tree")


def test_git_variables_become_absolute_and_calls_harmless() -> None:
    env = resolved_environment(
        {"GIT_DIR": ".git", "GIT_INDEX_FILE": ".git/i", "GIT_WORK_TREE": "/w"}, "/repo"
    )
    assert env["GIT_DIR"] == "/repo/.git"
    assert env["GIT_INDEX_FILE"] == "/repo/.git/i"
    assert env["GIT_WORK_TREE"] == "/w"
    assert env["GIT_OPTIONAL_LOCKS"] == "0"
    assert env["GIT_ALLOW_PROTOCOL"] == ""


def test_nothing_that_binds_to_the_repository_reaches_another_one(lab: Lab) -> None:
    lab.new()
    leaky = {
        "GIT_DIR": "x",
        "GIT_INDEX_FILE": "y",
        "GIT_CONFIG_KEY_0": "z",
        "PATH": "/bin",
        "GIT_SSH": "s",
    }
    assert without_repository_variables(leaky) == {"PATH": "/bin", "GIT_SSH": "s"}


def test_a_relative_path_entry_is_no_place_for_git(lab: Lab) -> None:
    planted = lab.folder / "git"
    planted.write_text("#!/bin/sh\n")
    planted.chmod(0o755)
    here = os.getcwd()
    os.chdir(lab.folder)
    try:
        found = find_git({"PATH": f":.:{os.environ['PATH']}"})
    finally:
        os.chdir(here)
    assert os.path.isabs(found)
    assert found != str(planted)


def test_a_lost_or_damaged_object_is_refused_by_name(lab: Lab) -> None:
    repo = lab.new()
    oid = lab.git("rev-parse", "HEAD:README")
    with opened(lab) as repository:
        assert repository.read_blob(oid) == b"hi\n"
        with pytest.raises(RefusedError, match="missing"):
            repository.read_blob("1" * 40)
        with pytest.raises(RefusedError):
            repository.read_blob(lab.git("rev-parse", "HEAD^{tree}"))
    path = repo / ".git" / "objects" / oid[:2] / oid[2:]
    path.chmod(0o644)
    path.write_bytes(b"rubbish")
    with opened(lab) as repository, pytest.raises(RefusedError, match=oid):
        repository.read_blob(oid)


def test_an_object_that_a_partial_clone_did_not_fetch_is_none(lab: Lab) -> None:
    lab.new()
    lab.git("config", "remote.origin.promisor", "true")
    with opened(lab) as repository:
        assert repository.read_blob("1" * 40) is None


@pytest.mark.parametrize("name", ["nope", "--all", "", "a\nb", "HEAD:README"])
def test_a_revision_that_is_no_commit(lab: Lab, name: str) -> None:
    lab.new()
    with opened(lab) as repository, pytest.raises(UsageError):
        repository.revision_snapshot(name)


def test_a_replaced_object_is_read_as_it_will_be_pushed(lab: Lab) -> None:
    lab.new()
    original = lab.git("rev-parse", "HEAD:README")
    other = lab.git("hash-object", "-w", "--stdin", stdin=b"replaced\n")
    lab.git("replace", original, other)
    with opened(lab) as repository:
        assert repository.index_snapshot().blob(b"README") == b"hi\n"


def test_whitespace_is_judged_by_the_trees_own_attributes(lab: Lab) -> None:
    lab.new()
    lab.write(".gitattributes", "*.patch -whitespace\n")
    lab.write("a.patch", "x  \n")
    lab.write("b\n:3: c.py", "x  \n<<<<<<< HEAD\nok\n\n")
    lab.commit("two")
    lab.write(".gitattributes", "* -whitespace\n")  # not staged: must not count
    with opened(lab) as repository:
        found = repository.whitespace_errors(None, repository.index_snapshot())
        assert found == [
            (b"b\n:3: c.py", 1, "trailing whitespace"),
            (b"b\n:3: c.py", 2, "leftover conflict marker"),
            (b"b\n:3: c.py", 4, "new blank line at EOF"),
        ]
        head = repository.head_tree()
        assert head is not None
        assert repository.whitespace_errors(head, repository.index_snapshot()) == []


def test_the_whitespace_check_writes_nothing_with_a_split_index_and_hooks(lab: Lab) -> None:
    repo = lab.new()
    lab.git("config", "core.splitIndex", "true")
    hook = repo / ".git" / "hooks" / "post-index-change"
    hook.write_text(f"#!/bin/sh\ntouch '{lab.folder}/ran'\n")
    hook.chmod(0o755)
    before = sorted(p for p in (repo / ".git").rglob("*"))
    with opened(lab) as repository:
        head = repository.head_tree()
        assert head is not None
        repository.whitespace_errors(None, tree_snapshot(repository, head, "HEAD"))
    assert sorted(p for p in (repo / ".git").rglob("*")) == before
    assert not (lab.folder / "ran").exists()


def test_gitpython_sees_the_same_repository_from_a_linked_worktree(lab: Lab) -> None:
    lab.new()
    lab.remote()
    lab.git("worktree", "add", "-q", str(lab.folder / "wt"), "-b", "feat")
    with Repository.discover(str(lab.folder / "wt"), lab.env) as repository:
        assert [remote.name for remote in repository.library().remotes] == ["origin"]


def test_the_whitespace_check_of_a_work_tree_stores_no_object(lab: Lab) -> None:
    lab.new()
    lab.write("a.py", "x = 1\n")
    lab.commit("one")
    lab.write("a.py", "x = 2  \n")
    with opened(lab) as repository:
        head = repository.head_tree()
        snapshot = repository.worktree_snapshot()
        before = lab.git("count-objects", "-v")
        found = repository.whitespace_errors(head, snapshot)
        assert found == [(b"a.py", 1, "trailing whitespace")]
        assert lab.git("count-objects", "-v") == before
