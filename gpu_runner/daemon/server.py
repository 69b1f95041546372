"""The daemon: takes connections, hands requests to their handlers, and knows when to end.

The main thread only accepts connections. Each client has a thread of its own, each device slot
another, and housekeeping one; nothing that takes time runs where it could delay an answer.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING

import msgspec

from attngate.gpu_runner import paths, protocol
from attngate.gpu_runner.channel import Channel
from attngate.gpu_runner.client import package_version
from attngate.gpu_runner.daemon import devices, log, supervise
from attngate.gpu_runner.daemon.executors.local import execute
from attngate.gpu_runner.daemon.queue import JobQueue
from attngate.gpu_runner.daemon.trees import Trees
from attngate.gpu_runner.errors import ConnectionLostError, MalformedMessageError, RunnerError
from attngate.gpu_runner.evidence.key import WORKER_FOLDER, code_digest
from attngate.gpu_runner.evidence.store import EvidenceStore, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from attngate.gpu_runner.protocol import Reply, Request

    Handle = Callable[["Server", "Session", Request], Iterator[Reply]]

MAX_CLIENTS = 128
_HOUSEKEEPING_S = 5.0
_PRUNE_S = 3600.0
_LAST_WORDS_S = 5.0


class Session:
    """One client's connection.

    Attributes:
        channel: The connection.
        name: Who it is, "" until it has said hello.
        token: See `protocol.Hello`.
    """

    def __init__(self, channel: Channel) -> None:
        """A client that has not said hello."""
        self.channel = channel
        self.name = ""
        self.token = ""


class Server:
    """The daemon's state, shared by the handlers.

    Attributes:
        queue: The jobs.
        trees: The exported trees.
        store: The evidence.
        slots: Where jobs run.
        code: Digest of the runner's sources as they were when it started.
        started_at: Seconds since 1970.
        ending: "" or the way in which it is coming to an end: "idle", "drained", "now".
        log: The daemon's logger.
    """

    def __init__(
        self,
        listener: socket.socket,
        path: Path,
        idle_exit_s: float,
        handle: Handle,
        worker: Path = WORKER_FOLDER,
    ) -> None:
        """Take over a socket that is bound to `path`; `handle` gives the replies to a request."""
        self._handle = handle
        self.log = log.logger()
        self.started_at = time.time()
        self.code = code_digest()
        self.idle_exit_s = idle_exit_s
        self.queue, self.trees = JobQueue(), Trees()
        self.store = EvidenceStore(paths.evidence_database())
        self.slots = devices.slots()
        self.ending = ""
        self.supervisor = supervise.Supervisor(
            self.queue, self.trees, self.store, execute, self.log, worker
        )
        self._listener, self._path = listener, path
        self._inode = path.lstat().st_ino
        self._sessions: set[Session] = set()
        self._lock = threading.Lock()
        self._busy_at = time.monotonic()
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_write.setblocking(False)

    def serve(self) -> None:
        """Serve until it is time to end; returns when nothing is left to do."""
        self.supervisor.start(self.slots)
        threading.Thread(target=self._keep_house, name="housekeeping", daemon=True).start()
        self.log.info("serving", socket=str(self._path), pid=os.getpid(), store=self.store.name)
        self._accept_until_ending()
        self._unlink()
        self._drain()
        self.supervisor.join(_LAST_WORDS_S)
        self.store.close()
        self.log.info("ended", way=self.ending)

    def end(self, way: str) -> None:
        """Take no new connection from now on, and end; see `protocol.Stop` for the ways.

        The socket is gone when this returns.
        """
        self.ending = way
        self._unlink()
        if way == "now":
            for job in self.queue.close():
                self.trees.release(job.tree)
        self.wake()

    def wake(self) -> None:
        """Make the main thread look around; safe in a signal handler."""
        with contextlib.suppress(OSError):
            self._wake_write.send(b"x")

    def welcome(self) -> protocol.Welcome:
        """What this daemon says of itself."""
        return protocol.Welcome(
            protocol=protocol.PROTOCOL_VERSION,
            version=package_version(),
            code=self.code,
            interpreter=sys.executable,
            pid=os.getpid(),
            started_at=self.started_at,
            jobs=self.queue.active(),
        )

    def clients(self) -> tuple[str, ...]:
        """Who is connected."""
        with self._lock:
            return tuple(sorted(session.name for session in self._sessions if session.name))

    def warnings(self) -> tuple[str, ...]:
        """What every reply has to tell."""
        return tuple(self.store.warnings)

    def _accept_until_ending(self) -> None:
        self._listener.setblocking(False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake_read, selectors.EVENT_READ)
            while not self.ending:
                for key, _ in selector.select(timeout=min(1.0, self.idle_exit_s / 4)):
                    if key.fileobj is self._wake_read:
                        self._wake_read.recv(4096)
                    else:
                        self._accept()
                if self._is_idle():
                    self.end("idle")

    def _is_idle(self) -> bool:
        with self._lock:
            if self._sessions or self.queue.active():
                self._busy_at = time.monotonic()
            return time.monotonic() - self._busy_at > self.idle_exit_s

    def _accept(self) -> bool:
        """Take one connection; False if none was there."""
        try:
            link, _ = self._listener.accept()
        except BlockingIOError:
            return False
        except OSError as error:  # out of descriptors, or the client has gone
            self.log.warning("a connection could not be taken", reason=str(error))
            time.sleep(0.05)
            return True
        channel = Channel(link)
        if channel.peer is not None and channel.peer[1] != os.getuid():
            self.log.warning("another user's connection was refused", uid=channel.peer[1])
            channel.close()
            return True
        self._open_session(channel)
        return True

    def _open_session(self, channel: Channel) -> None:
        session = Session(channel)
        with self._lock:
            is_full = len(self._sessions) >= MAX_CLIENTS
            if not is_full:
                self._sessions.add(session)
        if is_full:
            _say(channel, protocol.Refused(message="the daemon has too many clients at once"))
            channel.close()
            return
        threading.Thread(target=self._talk, args=(session,), name="client", daemon=True).start()

    def _talk(self, session: Session) -> None:
        """Answer one client until it leaves; whatever it does concerns this thread only."""
        try:
            while (frame := session.channel.receive_bytes()) is not None:
                self._answer(session, frame)
        except (ConnectionLostError, MalformedMessageError) as error:
            if isinstance(error, MalformedMessageError):
                self.log.warning("a client sent a bad frame", client=session.name, why=str(error))
                _say(session.channel, protocol.Refused(message=error.message))
        except Exception as error:
            self.log.exception("a client's thread failed", client=session.name)
            message = f"the daemon failed: {type(error).__name__}: {error}"
            _say(session.channel, protocol.Refused(message=message))
        finally:
            session.channel.close()
            with self._lock:
                self._sessions.discard(session)
            self.wake()

    def _answer(self, session: Session, frame: bytes) -> None:
        try:
            request = protocol.decode_request(frame)
            for reply in self._handle(self, session, request):
                session.channel.send(self._with_warnings(reply))
        except StoreError as error:
            self.log.warning("the evidence store failed", why=error.message)
            self._refuse(session, error)
        except (ConnectionLostError, MemoryError):
            raise
        except RunnerError as error:
            self._refuse(session, error)

    def _refuse(self, session: Session, error: RunnerError) -> None:
        reply = protocol.Refused(message=error.message, advice=error.advice)
        session.channel.send(self._with_warnings(reply))

    def _with_warnings(self, reply: Reply) -> Reply:
        return msgspec.structs.replace(reply, warnings=self.warnings())

    def _drain(self) -> None:
        """Answer those who had connected before the socket was removed, and let jobs end."""
        while self._accept():
            pass
        deadline = time.monotonic() + _LAST_WORDS_S
        while self.queue.active() or self._sessions:
            if self.ending == "now" and time.monotonic() > deadline:
                break
            if self.ending == "drained" and not self.queue.active():
                self.ending = "now"
                deadline = time.monotonic() + _LAST_WORDS_S / 5
            if self.ending == "now" and not self.queue.active():
                deadline = min(deadline, time.monotonic() + 0.5)
            time.sleep(0.02)
        for session in tuple(self._sessions):
            session.channel.hang_up()
        for job in self.queue.close():
            self.trees.release(job.tree)

    def _unlink(self) -> None:
        """Remove the socket, if it is still this daemon's."""
        with self._lock, contextlib.suppress(OSError):
            if self._path.lstat().st_ino == self._inode:
                self._path.unlink()

    def _keep_house(self) -> None:
        killed = supervise.kill_orphans()
        if killed:
            self.log.warning("killed workers of a daemon that is gone", count=killed)
        pruned_at = 0.0
        while True:
            if time.monotonic() - pruned_at > _PRUNE_S or not pruned_at:
                pruned_at = time.monotonic()
                log.prune_job_logs()
                with contextlib.suppress(StoreError):
                    self.store.prune()
            if not self.queue.active():
                with contextlib.suppress(OSError):
                    self.trees.sweep()
            time.sleep(_HOUSEKEEPING_S)


def _say(channel: Channel, reply: Reply) -> None:
    with contextlib.suppress(RunnerError, OSError):
        channel.send(reply)
