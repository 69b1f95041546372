"""Frames over the Unix socket, and who is at the other end.

Frames are the byte messages of `multiprocessing.connection` (a length, then the content), with a
cap on the length. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from attngate.gpu_runner import protocol
from attngate.gpu_runner.errors import ConnectionLostError, MalformedMessageError

if TYPE_CHECKING:
    from attngate.gpu_runner.protocol import Reply, Request

_PEER = struct.Struct("3i")  # pid, uid, gid
_FRAME_S = 20.0  # a frame that has begun must be complete within this time


def connect(path: str, timeout_s: float = 5.0) -> socket.socket:
    """Connect to a Unix socket; raises OSError as `socket.connect` does."""
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(timeout_s)
        link.connect(path)
    except OSError:
        link.close()
        raise
    return link


def peer(link: socket.socket) -> tuple[int, int] | None:
    """(process, user) at the other end as the kernel knows them; None where it does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    raw = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, uid, _ = _PEER.unpack(raw)
    return pid, uid


class Channel:
    """One end of a connection. Not for use by two threads at a time, but for `close`."""

    def __init__(self, link: socket.socket) -> None:
        """Take `link` over."""
        link.setblocking(True)
        limit = struct.pack("ll", int(_FRAME_S), 0)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self.peer = peer(link)
        self._connection = Connection(link.detach())

    def send(self, message: Request | Reply) -> None:
        """Send one message; raises ConnectionLostError when the peer is gone or does not read."""
        self.send_bytes(protocol.encode(message))

    def send_bytes(self, frame: bytes) -> None:
        """Send one frame as it is; raises as `send`."""
        if len(frame) > protocol.MAX_MESSAGE:
            raise MalformedMessageError(
                f"a message of {len(frame)} bytes is over the limit of {protocol.MAX_MESSAGE}"
            )
        try:
            self._connection.send_bytes(frame)
        except (OSError, ValueError) as error:
            raise ConnectionLostError(f"the connection broke while sending: {error}") from error

    def receive_bytes(self, timeout_s: float | None = None) -> bytes | None:
        """The next frame, or None when none began within `timeout_s` seconds.

        Raises:
            ConnectionLostError: The peer is gone, or stopped in the middle of a frame.
            MalformedMessageError: The frame is over the size limit.
        """
        try:
            if not self._connection.poll(timeout_s):
                return None
            return self._connection.recv_bytes(protocol.MAX_MESSAGE)
        except EOFError:
            raise ConnectionLostError("the other end closed the connection") from None
        except OSError as error:
            if str(error) == "bad message length":
                raise MalformedMessageError("a frame over the size limit") from None
            raise ConnectionLostError(f"the connection broke: {error}") from error
        except (ValueError, TypeError) as error:
            raise MalformedMessageError(f"not a frame: {error}") from error

    def has_input(self) -> bool:
        """True when a frame or the end of the connection is there to be read."""
        try:
            return self._connection.poll(0)
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """Close this end; harmless when done twice."""
        with contextlib.suppress(OSError):
            self._connection.close()

    def hang_up(self) -> None:
        """Make another thread's `receive_bytes` on this channel end; harmless when closed."""
        with contextlib.suppress(OSError, ValueError):
            duplicate = socket.socket(fileno=os.dup(self._connection.fileno()))
            with duplicate:
                duplicate.shutdown(socket.SHUT_RDWR)
