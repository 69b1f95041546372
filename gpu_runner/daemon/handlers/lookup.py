"""Lookup: what the evidence store holds for some keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attngate.gpu_runner.evidence.store import StoreError
from attngate.gpu_runner.protocol import Found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.gpu_runner.daemon.server import Server, Session
    from attngate.gpu_runner.evidence.key import JobKey
    from attngate.gpu_runner.protocol import JobEvidence, Lookup, Reply


def handle(server: Server, session: Session, request: Lookup) -> Iterator[Reply]:
    """Look each key up. A store that fails holds nothing: the jobs are then run."""
    del session
    yield Found(evidence=tuple(_find(server, key) for key in request.keys))


def _find(server: Server, key: JobKey) -> JobEvidence | None:
    try:
        return server.store.lookup(key)
    except StoreError as error:
        server.log.warning("a lookup failed", why=error.message)
        return None
