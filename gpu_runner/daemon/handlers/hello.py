"""Hello: who the client is, and what this daemon is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attngate.gpu_runner.daemon.server import Server, Session
    from attngate.gpu_runner.protocol import Hello, Reply


def handle(server: Server, session: Session, request: Hello) -> Iterator[Reply]:
    """Note the client's name. Any protocol is welcome: it decides itself what to do about it."""
    session.name, session.token = request.client[:200], request.token[:200]
    yield server.welcome()
