"""The exported trees that clients hand over.

A handed-over folder is renamed, so that nobody else writes into it by its old name, and kept while a
queued or running job refers to it. Deleting is left to a quiet moment: on some file systems it slows
down the writing of the next tree.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from attngate.gpu_runner import paths
from attngate.gpu_runner.errors import RunnerError

if TYPE_CHECKING:
    from collections.abc import Mapping

_OWNED = "owned-"
_FORGOTTEN_S = 3600.0


class Trees:
    """The trees of one daemon; safe to use from several threads."""

    def __init__(self) -> None:
        """Forget what an earlier daemon left; it is deleted at the next `sweep`."""
        self._folder = paths.trees_folder()
        self._lock = threading.Lock()
        self._users: Counter[Path] = Counter()
        self._names: dict[Path, Path] = {}
        self._serial = 0

    def adopt(self, handed: str) -> Path:
        """Take a folder over and count one use of it.

        Several jobs of one client may name the same folder: it is renamed once.

        Args:
            handed: Absolute path, directly below `paths.trees_folder()`.

        Returns:
            Where the tree is now.

        Raises:
            RunnerError: It is not there, not a folder of this user, or lies elsewhere.
        """
        path = Path(handed)
        with self._lock:
            owned = self._names.get(path)
            if owned is None or not self._users[owned]:
                owned = self._rename(path)
                self._names[path] = owned
            self._users[owned] += 1
            return owned

    def release(self, tree: Path) -> None:
        """Count one use less; a tree without uses goes at the next `sweep`."""
        with self._lock:
            self._users[tree] -= 1

    def sweep(self) -> None:
        """Delete trees that no job refers to, and handed-over ones that nobody spoke of again."""
        with self._lock:
            used = {tree for tree, count in self._users.items() if count > 0}
            self._users = Counter({tree: self._users[tree] for tree in used})
            self._names = {old: new for old, new in self._names.items() if new in used}
            entries = list(self._folder.iterdir())
        for entry in entries:
            if entry not in used and (entry.name.startswith(_OWNED) or _is_forgotten(entry)):
                shutil.rmtree(entry, ignore_errors=True)

    def _rename(self, path: Path) -> Path:
        advice = "hand a tree over as a folder directly below attngate's folder of trees"
        if path.parent != self._folder or path.name.startswith(_OWNED):
            raise RunnerError(f"the tree {path} does not lie in {self._folder}", advice)
        try:
            status = path.lstat()
        except OSError as error:
            raise RunnerError(f"the tree {path} is not there: {error.strerror}", advice) from error
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise RunnerError(f"the tree {path} is not a folder of yours", advice)
        self._serial += 1
        owned = self._folder / f"{_OWNED}{os.getpid()}-{self._serial}"
        try:
            path.rename(owned)
        except OSError as error:
            raise RunnerError(f"the tree {path} cannot be taken over: {error.strerror}") from error
        return owned


def _is_forgotten(entry: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - entry.lstat().st_mtime > _FORGOTTEN_S
    return False


def verify(tree: Path, manifest: Mapping[str, str]) -> None:
    """Compare files of a tree with their git blob ids.

    Args:
        tree: Root of the tree.
        manifest: Path in the tree to git object id, sha1 or sha256 by its length.

    Raises:
        RunnerError: A file is missing, is a link, or has other contents.
    """
    for path, oid in manifest.items():
        file = tree / path
        try:
            is_inside = file.is_file() and not file.is_symlink() and ".." not in Path(path).parts
            content = file.read_bytes() if is_inside else None
        except (OSError, ValueError):
            content = None
        if content is None:
            raise RunnerError(f"the exported tree has no file {path}")
        if blob_id(content, oid) != oid:
            raise RunnerError(f"{path} in the exported tree is not what the tree says ({oid[:12]})")


def blob_id(content: bytes, like: str) -> str:
    """Git's object id for a blob, in the hash that the id `like` is of."""
    algorithm = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return algorithm(b"blob %d\0" % len(content) + content).hexdigest()
