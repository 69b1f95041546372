"""Subjects of a check: staged index, work tree, revision, pushed object, installed distribution.

Each becomes a `Snapshot`, named by a tree id. The id of what is not a git tree yet is computed in
memory; nothing is written anywhere.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple

from attngate.hooks.errors import CouldNotCheckError, RefusedError, UsageError
from attngate.hooks.git import object_id, shown, tree_id
from attngate.validators.model import (
    MODE_EXECUTABLE,
    MODE_FILE,
    MODE_GITLINK,
    MODE_SYMLINK,
    FileEntry,
    Snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attngate.hooks.git import Repository

_NOT_FETCHED = "fetch the missing objects, for example with `git fetch --refetch`, and try again"


class Note(NamedTuple):
    """Something about a tree that is no finding of a rule but that a user should see."""

    name: str
    paths: tuple[bytes, ...]
    message: str
    advice: str


def staged(repository: Repository) -> Snapshot:
    """What `git commit` is about to commit; see `Repository.index_snapshot`."""
    files = dict(sorted(repository.index_entries().items()))
    tree = tree_id(files, repository.object_format)
    bases = repository.merge_parents_trees()
    return _with_changes(repository, tree, "staged index", files, bases)


def tree_snapshot(
    repository: Repository, tree: str, subject: str, bases: Sequence[str] = ()
) -> Snapshot:
    """A tree of the repository, compared with other trees of it.

    Args:
        repository: Where the tree lies.
        tree: Its object id.
        subject: What it is, in a user's words.
        bases: Trees it is compared with; without any, everything counts as changed.
    """
    files = dict(sorted(repository.tree_files(tree).items()))
    return _with_changes(repository, tree, subject, files, bases)


def revision(repository: Repository, name: str) -> Snapshot:
    """The tree of a revision, compared with its parents as far as the repository has them.

    Raises:
        UsageError: There is no such commit.
    """
    commit = repository.resolve_commit(name)
    parents = repository.commit_parents(commit)
    tree, *bases = repository.peel([f"{oid}^{{tree}}" for oid in (commit, *parents)])
    if tree is None:
        raise RefusedError(f"the tree of commit {commit} is not in the repository", _NOT_FETCHED)
    known = [base for base in bases if base]
    return tree_snapshot(repository, tree, f"commit {commit[:12]}", known)


def _with_changes(
    repository: Repository,
    tree: str,
    subject: str,
    files: Mapping[bytes, FileEntry],
    bases: Sequence[str],
) -> Snapshot:
    changed = changed_paths(files, [repository.tree_files(base) for base in bases])
    _refuse_missing(repository, files, changed)
    return Snapshot(tree, subject, files, repository.read_blob, changed)


def changed_paths(
    files: Mapping[bytes, FileEntry], bases: Sequence[Mapping[bytes, FileEntry]]
) -> frozenset[bytes] | None:
    """Paths that differ from every base (so what a merge merely brings in is not changed).

    Returns:
        The paths, deleted ones included; None without a base.
    """
    if not bases:
        return None
    differing = [
        {path for path in files.keys() | base.keys() if files.get(path) != base.get(path)}
        for base in bases
    ]
    return frozenset(set.intersection(*differing))


def _refuse_missing(
    repository: Repository, files: Mapping[bytes, FileEntry], changed: frozenset[bytes] | None
) -> None:
    """A file of the change that a partial clone has not fetched cannot be vouched for."""
    if not changed:
        return
    by_oid = {files[p].oid: p for p in changed if p in files and files[p].is_regular}
    missing = repository.missing_objects(by_oid)
    if missing:
        names = shown(sorted(by_oid[oid] for oid in missing))
        raise RefusedError(
            f"changed files are not in the repository (not fetched): {names}", _NOT_FETCHED
        )


def worktree(repository: Repository) -> Snapshot:
    """Tracked files as they lie on disk, hashed in memory; see `Repository.worktree_snapshot`.

    Bytes are taken as they are, without line-ending or other conversion. A path that a sparse
    checkout leaves out has the contents of the index.
    """
    if not repository.toplevel:
        raise UsageError(f"{repository.git_dir} is a bare repository: it has no work tree")
    reader = _DiskReader(repository)
    for path, entry in sorted(repository.index_entries().items()):
        reader.add(path, entry)
    tree = tree_id(reader.files, repository.object_format)
    bases = [base for base in [repository.head_tree()] if base]
    changed = changed_paths(reader.files, [repository.tree_files(base) for base in bases])
    return Snapshot(tree, "work tree", reader.files, reader.read, changed)


class _DiskReader:
    """Files of the work tree: their ids now, their bytes later, refused if they changed meanwhile."""

    def __init__(self, repository: Repository) -> None:
        self.files: dict[bytes, FileEntry] = {}
        self._repository = repository
        self._root = os.fsencode(repository.toplevel)
        self._places: dict[str, bytes] = {}
        listing = repository.list_index("-t").split(b"\0")
        self._sparse = {line[2:] for line in listing if line.startswith(b"S ")}
        # A sparse index names a folder that is left out once, with a slash at its end.
        self._sparse_folders = tuple(path for path in self._sparse if path.endswith(b"/"))

    def add(self, path: bytes, indexed: FileEntry) -> None:
        place = os.path.join(self._root, path)
        try:
            status = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            if path in self._sparse or path.startswith(self._sparse_folders):
                self.files[path] = indexed
            return
        if indexed.mode == MODE_GITLINK or self._below_link(path):
            if indexed.mode == MODE_GITLINK:
                self.files[path] = indexed
            return
        contents = _contents(place, status)
        if contents is None:
            return
        mode, data = contents
        oid = object_id(b"blob", data, self._repository.object_format)
        self.files[path] = FileEntry(mode, oid)
        self._places[oid] = place

    def _below_link(self, path: bytes) -> bool:
        """True where a folder of the path is a link now: git sees such a file as deleted."""
        folder = os.path.dirname(path)
        while folder:
            if os.path.islink(os.path.join(self._root, folder)):
                return True
            folder = os.path.dirname(folder)
        return False

    def read(self, oid: str) -> bytes | None:
        place = self._places.get(oid)
        if place is None:
            return self._repository.read_blob(oid)
        try:
            contents = _contents(place, os.lstat(place))
        except OSError:
            contents = None
        if (
            contents is None
            or object_id(b"blob", contents[1], self._repository.object_format) != oid
        ):
            raise CouldNotCheckError(
                f"{os.fsdecode(place)} changed while it was being checked", "run the check again"
            )
        return contents[1]


def _contents(place: bytes, status: os.stat_result) -> tuple[int, bytes] | None:
    """Git mode and bytes of a file or link; None for what git does not track (folders, devices)."""
    if stat.S_ISLNK(status.st_mode):
        return MODE_SYMLINK, os.readlink(place)
    if not stat.S_ISREG(status.st_mode):
        return None
    try:
        with open(place, "rb") as file:
            data = file.read()
    except OSError as error:
        raise CouldNotCheckError(f"cannot read {os.fsdecode(place)}: {error.strerror}") from error
    return (MODE_EXECUTABLE if status.st_mode & 0o100 else MODE_FILE), data


def installed(distribution: str, search: Sequence[str]) -> Snapshot:
    """The files of an installed distribution, by their paths below site-packages.

    Args:
        distribution: Its name, in any of the spellings that packaging tools accept.
        search: Folders of site-packages, first match wins.

    Raises:
        UsageError: It is not installed there, or only as an editable link to a source tree.
    """
    metadata = _find_metadata(distribution, search)
    root = os.path.dirname(metadata)
    places = _recorded_files(metadata, root)
    contents: dict[str, bytes] = {}
    files: dict[bytes, FileEntry] = {}
    for path in sorted(places):
        found = _read_installed(os.path.join(root, path))
        if found is not None:
            oid = object_id(b"blob", found[1], "sha1")
            contents[oid] = found[1]
            files[os.fsencode(path)] = FileEntry(found[0], oid)
    if not files:
        raise UsageError(
            f"{distribution} in {root} has no files of its own (an editable installation?)",
            "check its source tree instead",
        )
    version = os.path.basename(metadata).rsplit(".", 1)[0].partition("-")[2]
    subject = f"installed {distribution} {version} in {root}"
    return Snapshot(tree_id(files, "sha1"), subject, files, contents.get, None)


def _read_installed(place: str) -> tuple[int, bytes] | None:
    try:
        return _contents(os.fsencode(place), os.lstat(place))
    except (FileNotFoundError, NotADirectoryError):
        return None


def _find_metadata(distribution: str, search: Sequence[str]) -> str:
    wanted = _normalised(distribution)
    for folder in search:
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            stem, dot, suffix = name.rpartition(".")
            if dot and suffix == "dist-info" and _normalised(stem.partition("-")[0]) == wanted:
                return os.path.join(folder, name)
    raise UsageError(
        f"{distribution} is not installed in {', '.join(search) or 'any folder'}",
        "name the interpreter that has it with `interpreter` in [tool.attngate]",
    )


def _normalised(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def _recorded_files(metadata: str, root: str) -> set[str]:
    """Paths below site-packages that the distribution's RECORD lists, without caches and metadata."""
    import csv

    try:
        with open(os.path.join(metadata, "RECORD"), encoding="utf-8", newline="") as file:
            listed = [row[0] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"the file list of {metadata} cannot be read: {error}", "install it again"
        ) from error
    keep = set()
    for name in listed:
        path = os.path.normpath(os.path.join(root, name))
        inside = os.path.relpath(path, root)
        parts = inside.split(os.sep)
        own = not (parts[0] == ".." or parts[0].endswith(".dist-info") or "__pycache__" in parts)
        if own and not (len(parts) == 1 and inside.startswith(("__editable__", "_editable_"))):
            keep.add(inside)
    return {path for path in keep if not path.endswith(".pth")}


def notes(snapshot: Snapshot) -> list[Note]:
    """What is odd about a tree: names that differ in case only, submodules nobody declared."""
    return [*_case_pairs(snapshot), *_undeclared_submodules(snapshot)]


def _case_pairs(snapshot: Snapshot) -> list[Note]:
    groups: dict[str, list[bytes]] = {}
    for path in snapshot.files:
        groups.setdefault(os.fsdecode(path).casefold(), []).append(path)
    return [
        Note(
            "case-collision",
            tuple(paths),
            f"paths differ in case only: {shown(paths)}",
            "rename one: on macOS and Windows a checkout keeps only one of them",
        )
        for paths in groups.values()
        if len(paths) > 1
    ]


def _undeclared_submodules(snapshot: Snapshot) -> list[Note]:
    links = [path for path, entry in snapshot.files.items() if entry.mode == MODE_GITLINK]
    if not links:
        return []
    declared = _declared_submodules(snapshot.blob(b".gitmodules") or b"")
    return [
        Note(
            "undeclared-submodule",
            (path,),
            f"{shown([path])} is a link to a commit of another repository, and .gitmodules has no entry for it",
            "a nested clone was added by accident? `git rm --cached` it, or use `git submodule add`",
        )
        for path in links
        if path not in declared
    ]


def _declared_submodules(gitmodules: bytes) -> set[bytes]:
    declared = set()
    for line in gitmodules.splitlines():
        key, equals, value = line.partition(b"=")
        if equals and key.strip().lower() == b"path":
            declared.add(value.strip().strip(b'"').rstrip(b"/"))
    return declared
