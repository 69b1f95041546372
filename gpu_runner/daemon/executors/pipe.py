"""Frames to and from a worker, with deadlines; never blocks on a worker that hangs or misbehaves.

The format is that of `worker.wire`.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import TYPE_CHECKING, Any

from attngate.gpu_runner.daemon.executors.task import JobCancelledError
from attngate.gpu_runner.worker import wire

if TYPE_CHECKING:
    from collections.abc import Callable

_LENGTH = struct.Struct(">I")
_SLICE_S = 0.05
_CHUNK = 1 << 20


class PeerEndedError(Exception):
    """The worker ended, or closed its frames."""


class DeadlinePassedError(Exception):
    """The worker did not answer, or did not read, in time."""


class MalformedFrameError(Exception):
    """The worker sent something that is not an answer."""


class FramePipe:
    """Both directions of one worker's frames. Owns its two descriptors."""

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        has_ended: Callable[[], bool],
        is_cancelled: Callable[[], bool],
        max_frame: int = wire.MAX_FRAME,
    ) -> None:
        """Take the descriptors over; `has_ended` tells whether the worker's process has."""
        self._read_fd, self._write_fd = read_fd, write_fd
        self._has_ended, self._is_cancelled = has_ended, is_cancelled
        self._max_frame = max_frame
        self._received = bytearray()
        for fd in (read_fd, write_fd):
            os.set_blocking(fd, False)

    def send(self, message: dict[str, Any], deadline: float) -> None:
        """Send one frame; `deadline` is a time of `time.monotonic`.

        Raises:
            MalformedFrameError: Something lies unread: the worker has spoken out of turn.
            PeerEndedError, DeadlinePassedError, JobCancelledError: As they say.
        """
        if self._received or (self._is_readable(0) and self._read_some()):
            raise MalformedFrameError("the worker sent a frame that nobody had asked for")
        payload = json.dumps(message, allow_nan=False).encode()
        if len(payload) > wire.MAX_FRAME:
            raise MalformedFrameError(f"a request of {len(payload)} bytes is over the cap")
        data = memoryview(_LENGTH.pack(len(payload)) + payload)
        while data:
            data = data[self._write_some(data) :]
            if data:
                self._pause(self._write_fd, select.POLLOUT, deadline)

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next frame; raises as `send`."""
        size = _LENGTH.unpack(self._take(_LENGTH.size, deadline))[0]
        if size > self._max_frame:
            raise MalformedFrameError(f"a frame of {size} bytes is over the cap")
        return _decoded(self._take(size, deadline))

    def close(self) -> None:
        """Close both descriptors."""
        for fd in (self._read_fd, self._write_fd):
            os.close(fd)

    def _take(self, size: int, deadline: float) -> bytes:
        while len(self._received) < size:
            if not self._read_some():
                self._pause(self._read_fd, select.POLLIN, deadline)
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _read_some(self) -> bool:
        """Add what is there to the buffer; False if nothing was there yet."""
        try:
            part = os.read(self._read_fd, _CHUNK)
        except BlockingIOError:
            return False
        except OSError as error:
            raise PeerEndedError(str(error)) from error
        if not part:
            raise PeerEndedError("the worker closed its frames")
        self._received += part
        return True

    def _write_some(self, data: memoryview) -> int:
        try:
            return os.write(self._write_fd, data[:_CHUNK])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise PeerEndedError(str(error)) from error

    def _pause(self, fd: int, event: int, deadline: float) -> None:
        """Wait until something may have changed, and find out whether to go on."""
        if self._is_cancelled():
            raise JobCancelledError
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise DeadlinePassedError
        # A process that it started may still hold the pipe, so the end of the pipe is not enough.
        ended = self._has_ended()
        ready = _poll(fd, event, 0.0 if ended else min(_SLICE_S, remaining))
        if ended and not ready:
            raise PeerEndedError("the worker ended")

    def _is_readable(self, seconds: float) -> bool:
        return _poll(self._read_fd, select.POLLIN, seconds)


def _poll(fd: int, event: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(fd, event)
    return bool(poller.poll(int(seconds * 1000)))


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedFrameError(f"a frame is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise MalformedFrameError("a frame is not a JSON object")
    return message
