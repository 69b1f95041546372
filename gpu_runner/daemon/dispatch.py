"""Which handler answers which request. A new request is a file in `handlers` and a line here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attngate.gpu_runner import protocol
from attngate.gpu_runner.daemon.handlers import (
    cancel,
    hello,
    logs,
    lookup,
    status,
    stop,
    submit,
    wait,
)
from attngate.gpu_runner.errors import RunnerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from attngate.gpu_runner.daemon.server import Server, Session

_HANDLERS: dict[type, Callable[[Server, Session, Any], Iterator[protocol.Reply]]] = {
    protocol.Cancel: cancel.handle,
    protocol.Hello: hello.handle,
    protocol.Logs: logs.handle,
    protocol.Lookup: lookup.handle,
    protocol.Status: status.handle,
    protocol.Stop: stop.handle,
    protocol.Submit: submit.handle,
    protocol.Wait: wait.handle,
}


def handle(server: Server, session: Session, request: protocol.Request) -> Iterator[protocol.Reply]:
    """The replies to a request; raises RunnerError for a client that has not introduced itself."""
    if not session.name and not isinstance(request, protocol.Hello):
        raise RunnerError("a client must say hello first")
    return _HANDLERS[type(request)](server, session, request)
