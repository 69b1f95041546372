"""Subjects of a check become trees."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from attngate.hooks.errors import CouldNotCheckError, RefusedError, UsageError
from attngate.hooks.git import Repository
from attngate.hooks.snapshot import installed, notes
from attngate.validators.model import MODE_EXECUTABLE, MODE_SYMLINK

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Lab


def opened(lab: Lab) -> Repository:
    return Repository.discover(str(lab.repo), lab.env)


def test_the_work_tree_as_it_lies_on_disk(lab: Lab) -> None:
    lab.new()
    lab.write("gone.py", "")
    lab.write("link.py", "")
    lab.commit("two")
    (lab.repo / "gone.py").unlink()
    (lab.repo / "link.py").unlink()
    (lab.repo / "link.py").symlink_to("base.py")
    lab.write("base.py", "changed = 1\n").chmod(0o755)
    lab.write("untracked.py", "")
    with opened(lab) as repository:
        snapshot = repository.worktree_snapshot()
        assert snapshot.blob(b"base.py") == b"changed = 1\n"
    assert set(snapshot.files) == {b"base.py", b"link.py", b"README"}
    assert snapshot.files[b"base.py"].mode == MODE_EXECUTABLE
    assert snapshot.files[b"link.py"].mode == MODE_SYMLINK
    assert snapshot.changed == {b"base.py", b"gone.py", b"link.py"}
    lab.git("add", "-u")
    assert snapshot.tree == lab.git("write-tree")


def test_a_file_that_changes_while_it_is_checked_is_noticed(lab: Lab) -> None:
    lab.new()
    with opened(lab) as repository:
        snapshot = repository.worktree_snapshot()
        lab.write("base.py", "later\n")
        with pytest.raises(CouldNotCheckError, match=r"base\.py changed"):
            snapshot.blob(b"base.py")


@pytest.mark.parametrize("option", ["--no-sparse-index", "--sparse-index"])
def test_paths_that_a_sparse_checkout_leaves_out_come_from_the_index(lab: Lab, option: str) -> None:
    lab.new()
    lab.write("in/a.py", "a\n")
    lab.write("out/deep/b.py", "b\n")
    lab.commit("two")
    lab.git("sparse-checkout", "set", option, "in")
    with opened(lab) as repository:
        snapshot = repository.worktree_snapshot()
        assert snapshot.blob(b"out/deep/b.py") == b"b\n"
        assert snapshot.changed == frozenset()
        assert snapshot.tree == repository.head_tree()


def test_a_file_below_a_folder_that_became_a_link_is_gone(lab: Lab) -> None:
    lab.new()
    lab.write("d/a.py", "a\n")
    lab.write("e/a.py", "other\n")
    lab.commit("two")
    (lab.repo / "d" / "a.py").unlink()
    (lab.repo / "d").rmdir()
    (lab.repo / "d").symlink_to("e")
    with opened(lab) as repository:
        assert b"d/a.py" not in repository.worktree_snapshot().files


def test_a_revision_is_compared_with_its_parents(lab: Lab) -> None:
    lab.new()
    lab.write("two.py", "")
    commit = lab.commit("two")
    lab.write("three.py", "")
    lab.commit("three")
    with opened(lab) as repository:
        snapshot = repository.revision_snapshot("HEAD~1")
    assert snapshot.tree == lab.git("rev-parse", "HEAD~1^{tree}")
    assert snapshot.subject == f"commit {commit[:12]}"
    assert snapshot.changed == {b"two.py"}


def test_a_changed_file_that_was_not_fetched_is_refused_by_name(lab: Lab) -> None:
    repo = lab.new()
    lab.write("a.py", "content\n")
    lab.git("add", "a.py")
    oid = lab.git("rev-parse", ":a.py")
    (repo / ".git" / "objects" / oid[:2] / oid[2:]).unlink()
    with opened(lab) as repository, pytest.raises(RefusedError, match=r"not fetched.*a\.py"):
        repository.index_snapshot()


def test_names_in_two_cases_and_undeclared_submodules_are_noted(lab: Lab) -> None:
    lab.new()
    lab.write("Mod.py", "")
    lab.write("mod.py", "")
    (lab.repo / "inner").mkdir()
    lab.git("init", "-q", cwd=lab.repo / "inner")
    lab.git("commit", "-q", "--allow-empty", "-m", "x", cwd=lab.repo / "inner")
    lab.git("add", "-A")
    with opened(lab) as repository:
        found = {note.name: note.paths for note in notes(repository.index_snapshot())}
    assert found == {
        "case-collision": (b"Mod.py", b"mod.py"),
        "undeclared-submodule": (b"inner",),
    }
    lab.write(".gitmodules", '[submodule "inner"]\n\tpath = inner\n\turl = x\n')
    lab.git("add", ".gitmodules")
    with opened(lab) as repository:
        assert [note.name for note in notes(repository.index_snapshot())] == ["case-collision"]


def site_packages(folder: Path, record: str) -> str:
    metadata = folder / "My_Plugin-1.2.dist-info"
    metadata.mkdir()
    (metadata / "RECORD").write_text(record)
    (folder / "my_plugin").mkdir()
    (folder / "my_plugin" / "__init__.py").write_text("x = 1\n")
    return str(folder)


def test_an_installed_distribution_is_its_recorded_files(tmp_path: Path) -> None:
    record = (
        "my_plugin/__init__.py,sha256=x,6\nmy_plugin/__pycache__/a.pyc,,\n"
        "My_Plugin-1.2.dist-info/RECORD,,\n../../bin/tool,,\nmy_plugin/lost.py,,\n"
    )
    folder = site_packages(tmp_path, record)
    snapshot = installed("my.plugin", [str(tmp_path / "absent"), folder])
    assert set(snapshot.files) == {b"my_plugin/__init__.py"}
    assert snapshot.blob(b"my_plugin/__init__.py") == b"x = 1\n"
    assert snapshot.subject == f"installed my.plugin 1.2 in {folder}"
    assert len(snapshot.tree) == 40


def test_an_editable_installation_is_not_mistaken_for_an_empty_one(tmp_path: Path) -> None:
    folder = site_packages(tmp_path, "__editable__.my_plugin-1.2.pth,,\n")
    with pytest.raises(UsageError, match="editable"):
        installed("my-plugin", [folder])


def test_a_distribution_that_is_not_installed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not installed"):
        installed("absent", [os.fspath(tmp_path)])
