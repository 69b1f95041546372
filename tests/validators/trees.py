"""Snapshots of plain dictionaries, hashed as git hashes, for tests of the pure check."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from attngate.validators.model import MODE_FILE, FileEntry, Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping


def blob_id(raw: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(raw) + raw).hexdigest()


def snapshot(files: Mapping[str, str | bytes], modes: Mapping[str, int] | None = None) -> Snapshot:
    """A tree of the given files; a mode in `modes` makes an entry a link, a submodule or executable."""
    raws = {p.encode(): t.encode() if isinstance(t, str) else t for p, t in sorted(files.items())}
    entries = {
        path: FileEntry((modes or {}).get(path.decode(), MODE_FILE), blob_id(raw))
        for path, raw in raws.items()
    }
    blobs = {blob_id(raw): raw for raw in raws.values()}
    listing = b"".join(b"%s %s\n" % (e.oid.encode(), p) for p, e in entries.items())
    return Snapshot(blob_id(listing), "a test's tree", entries, blobs.get)
