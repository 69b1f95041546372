"""Snapshots made from plain text, for tests of what reads a tree."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from attngate.validators.model import MODE_FILE, FileEntry, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def snapshot_of(files: Mapping[str, str | bytes], changed: set[str] | None = None) -> Snapshot:
    """A snapshot of the given texts, with git's own object ids."""
    blobs: dict[str, bytes] = {}
    entries: dict[bytes, FileEntry] = {}
    for path, text in sorted(files.items()):
        raw = text.encode() if isinstance(text, str) else text
        oid = hashlib.sha1(b"blob %d\0%s" % (len(raw), raw)).hexdigest()
        blobs[oid] = raw
        entries[path.encode()] = FileEntry(MODE_FILE, oid)
    names = None if changed is None else frozenset(p.encode() for p in changed)
    tree = hashlib.sha1("".join(sorted(blobs)).encode()).hexdigest()
    return Snapshot(tree, "texts", entries, blobs.get, names)


@pytest.fixture
def tree() -> Callable[..., Snapshot]:
    return snapshot_of
