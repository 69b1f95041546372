"""Where a check's memory lies between runs: one file a repository, tool, target and set of options.

A memory that is not there, or cannot be read, costs time and nothing else. It is written beside its
name and moved into place, so that two checks at once leave one of two whole files.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from attngate.hooks import fast
from attngate.validators.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attngate.hooks.git import Repository
    from attngate.validators.model import CheckOptions

_KEPT = 24
_SUFFIX = ".memory"


class MemoryStore:
    """The memory of one repository's checks with one set of options.

    Args:
        repository: Whose checks.
        options: Options of the check.
        env: The caller's environment; it names the cache folder.
    """

    def __init__(
        self, repository: Repository, options: CheckOptions, env: Mapping[str, str]
    ) -> None:
        clean = fast.cache_folder(env)
        self._folder = os.path.join(os.path.dirname(clean), "checks") if clean else ""
        self._path = os.path.join(self._folder, _name(repository, options) + _SUFFIX)

    def load(self) -> Memory:
        """What is remembered; an empty memory where there is nothing to read."""
        try:
            with open(self._path, "rb") as file:
                return Memory.decode(file.read())
        except (OSError, msgspec.DecodeError):
            return Memory()

    def keep(self, memory: Memory) -> None:
        """Store a memory that has something new; silently not where there is no place for it."""
        if not self._folder or not memory.changed:
            return
        try:
            fast.make_folders(self._folder)
            handle, path = tempfile.mkstemp(dir=self._folder, suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(memory.encode())
            os.replace(path, self._path)
            self._drop_old()
        except OSError:
            return

    def _drop_old(self) -> None:
        """Leave the newest memories; a part that a killed check left goes with the old ones."""
        with os.scandir(self._folder) as entries:
            found = sorted(entries, key=lambda entry: -entry.stat().st_mtime_ns)
        for entry in found[_KEPT:]:
            os.unlink(entry.path)


def _name(repository: Repository, options: CheckOptions) -> str:
    """Digest of everything but the tree that a check's result depends on."""
    target = options.target
    plain = replace(
        options, target=None, builds={}, installed={}, ignore=frozenset(), operators=frozenset()
    )
    parts = [
        os.fsencode(repository.common_dir),
        fast.tool_digest().encode(),
        repr(plain).encode("utf-8", "surrogateescape"),
        repr(sorted(options.ignore) + sorted(options.operators)).encode(),
        repr(sorted(options.builds.items())).encode("utf-8", "surrogateescape"),
        repr(sorted(options.installed.items())).encode("utf-8", "surrogateescape"),
        target.fingerprint.encode() if target is not None else b"",
    ]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()[:32]
