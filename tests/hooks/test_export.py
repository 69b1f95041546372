"""Exported trees: raw bytes, private, nothing outside, nothing left behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from attngate.hooks import export
from attngate.hooks.errors import CouldNotCheckError
from attngate.hooks.git import Repository
from attngate.validators.model import MODE_SYMLINK, FileEntry, Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conftest import Lab


def with_links(files: Mapping[bytes, bytes], links: Mapping[bytes, bytes]) -> Snapshot:
    """A tree that git itself might refuse to make."""
    blobs = {path.hex(): data for path, data in [*files.items(), *links.items()]}
    entries = {path: FileEntry(0o100644, path.hex()) for path in files}
    entries |= {path: FileEntry(MODE_SYMLINK, path.hex()) for path in links}
    return Snapshot("0" * 40, "made up", entries, blobs.get)


def test_bytes_and_modes_are_the_commits_whatever_filters_attributes_and_umask_say(
    lab: Lab,
) -> None:
    lab.new()
    lab.git("config", "filter.no.smudge", "false")
    lab.git("config", "filter.no.required", "true")
    lab.write(".gitattributes", "*.py eol=crlf filter=no -text\n/docs export-ignore\n")
    lab.write("tool.py", "a\n").chmod(0o755)
    lab.write("docs/x.py", "b\n")
    lab.git("config", "filter.no.clean", "cat")
    lab.git("add", "-A")
    before = os.umask(0)
    try:
        with (
            Repository.discover(str(lab.repo), lab.env) as repository,
            export.export(repository.index_snapshot()) as tree,
        ):
            assert os.stat(tree.folder).st_mode & 0o777 == 0o700
            status = os.stat(f"{tree.folder}/tool.py")
            assert status.st_mode & 0o777 == 0o755
            assert status.st_size == 2
            assert os.stat(f"{tree.folder}/docs/x.py").st_mode & 0o777 == 0o644
            assert tree.left_out == []
            assert tree.ignored_attributes == [
                "eol=crlf (.gitattributes)",
                "export-ignore (.gitattributes)",
                "filter=no (.gitattributes)",
            ]
    finally:
        os.umask(before)
    assert not os.path.exists(tree.folder)


def test_only_links_that_stay_in_the_tree_are_made() -> None:
    links = {
        b"abs": b"/etc/hostname",
        b"out": b"../../etc/hostname",
        b"round": b"pkg/../../x",
        b"nowhere": b"absent.py",
        b"loop_a": b"loop_b",
        b"loop_b": b"loop_a",
        b"through": b"out/x",
        b"good": b"pkg/a.py",
        b"folder": b"pkg",
        b"chain": b"folder/a.py",
        b"pkg/up": b"../good",
    }
    with export.export(with_links({b"pkg/a.py": b"a\n"}, links)) as tree:
        made = {
            name for name in links if os.path.lexists(os.path.join(os.fsencode(tree.folder), name))
        }
        assert made == {b"good", b"folder", b"chain", b"pkg/up"}
        assert {path for path, _ in tree.left_out} == links.keys() - made
        assert Path(tree.folder, "pkg", "up").read_text() == "a\n"


def test_hostile_paths_are_written_nowhere(tmp_path: Path) -> None:
    hostile = {
        b"../x": b"",
        b".git/config": b"",
        b"a//b": b"",
        b"sub/.GIT/hooks/x": b"",
        b"/etc/y": b"",
        b"l/x": b"",
    }
    snapshot = with_links(hostile, {b"l": b"sub"})
    left_out = export.write_files(snapshot, str(tmp_path))
    assert {path for path, _ in left_out} == {*hostile, b"l"} - {b"l/x"}
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["l", "x"]


def test_a_submodule_and_an_unwanted_path_are_not_written(lab: Lab) -> None:
    lab.new()
    lab.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},sub")
    with (
        Repository.discover(str(lab.repo), lab.env) as repository,
        export.export(repository.index_snapshot(), lambda path: path != b"README") as tree,
    ):
        assert sorted(os.listdir(tree.folder)) == ["base.py"]
        assert [path for path, _ in tree.left_out] == [b"sub"]


def test_a_full_disk_is_named_with_the_room_left_and_nothing_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(export, "temporary_root", lambda: str(tmp_path))
    monkeypatch.setattr(export._Writer, "_create", full)
    with pytest.raises(CouldNotCheckError, match=r"No space left.*KiB"):
        export.export(with_links({b"a": b"a"}, {}))
    assert list(tmp_path.iterdir()) == []


def test_the_next_run_removes_what_a_killed_one_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(export, "temporary_root", lambda: str(tmp_path))
    code = (
        "import os, sys\nfrom attngate.hooks import export\n"
        "export.temporary_root = lambda: sys.argv[1]\n"
        "export.make_private_folder('tree')\nos.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-I", "-c", code, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    alive = export.make_private_folder("mine")
    foreign = tmp_path / "attngate-something-else"
    foreign.mkdir()
    with export.private_folder("next"):
        assert not left.exists()
        assert os.path.isdir(alive)
        assert foreign.exists()


def test_a_reused_process_id_does_not_keep_a_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(export, "temporary_root", lambda: str(tmp_path))
    mark = export.owner_mark().split("-")
    old = tmp_path / f"attngate-tree-{mark[0]}-1-{mark[2]}-abc"
    elsewhere = tmp_path / f"attngate-tree-999999999-1-{int(mark[2]) + 1}-abc"
    old.mkdir()
    elsewhere.mkdir()
    export.make_private_folder("x")
    assert not old.exists()
    assert elsewhere.exists()
