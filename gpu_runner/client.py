"""Talks to the daemon, and starts it where it is not there.

Usage::

    with Client.connect() as client:
        ids = client.submit(requests)
        reports = client.wait(ids, timeout_s=60, progress=show)
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import time
import uuid
from importlib import metadata
from typing import TYPE_CHECKING, Self, TypeVar

from attngate.gpu_runner import channel, paths, protocol, spawn
from attngate.gpu_runner.errors import (
    ConnectionLostError,
    ForeignSocketError,
    MalformedMessageError,
    RunnerError,
)
from attngate.gpu_runner.evidence.key import code_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from attngate.gpu_runner.evidence.key import JobKey
    from attngate.gpu_runner.protocol import JobEvidence, JobId, JobReport, JobRequest

ANSWER_S = 20.0
START_S = 30.0
_LOCK_S = 10.0  # a daemon that has not taken its lock by then has failed
_T = TypeVar("_T")


class NotRunningError(RunnerError):
    """There is no daemon, and none was to be started."""


class Client:
    """A connection to the daemon; a context manager.

    Attributes:
        welcome: What the daemon said of itself.
        warnings: What it wants the user to know (an evidence store in memory only, ...), collected
            from all replies; belongs in every report.
    """

    def __init__(self, link: channel.Channel, name: str, token: str) -> None:
        """Say hello over `link`; raises ForeignSocketError where no daemon answers."""
        self._channel = link
        self._identity = (name, token)
        self._is_midway = False
        self.warnings: list[str] = []
        hello = protocol.Hello(
            protocol=protocol.PROTOCOL_VERSION,
            version=package_version(),
            code=code_digest(),
            client=name,
            token=token,
        )
        try:
            self.welcome = self._ask(hello, protocol.Welcome)
        except MalformedMessageError as error:
            raise ForeignSocketError(
                f"what listens at {paths.socket_path()} is not attngate's daemon: {error.message}",
                "remove the socket, or stop the program that made it",
            ) from error

    @classmethod
    def connect(cls, *, auto_start: bool = True, name: str = "") -> Client:
        """Connect to this user's daemon.

        A daemon of other sources is replaced when it has no job; a busy one of the same protocol
        serves.

        Args:
            auto_start: Start it where it is not running.
            name: Who is asking, for the queue's display; by default the command line's.

        Raises:
            NotRunningError: It is not running and `auto_start` is False.
            ForeignSocketError: Something else is at its socket's path.
            RunnerError: It cannot be started, or a busy one speaks another protocol.
        """
        name = name or f"{os.path.basename(sys.argv[0])}, process {os.getpid()}"
        token = uuid.uuid4().hex
        client = _reach(name, token) if auto_start else _attach(name, token)
        if client is None:
            raise NotRunningError(
                "the daemon is not running", "start it with: attngate daemon start"
            )
        if not auto_start or client.welcome.code == code_digest():
            return client
        return _replace_if_idle(client, name, token)

    def submit(self, requests: Sequence[JobRequest]) -> list[JobId]:
        """Queue jobs, or join those that are under way for the same key.

        The trees that the requests name belong to the daemon from then on.

        Raises:
            RunnerError: The daemon refused, with its reason.
        """
        reply = self._ask_again(protocol.Submit(jobs=tuple(requests)), protocol.Accepted)
        return list(reply.ids)

    def lookup(self, keys: Sequence[JobKey]) -> list[JobEvidence | None]:
        """The newest complete evidence for each key, or None."""
        reply = self._ask_again(protocol.Lookup(keys=tuple(keys)), protocol.Found)
        return list(reply.evidence)

    def wait(
        self,
        ids: Sequence[JobId],
        timeout_s: float,
        progress: Callable[[list[JobReport]], None] | None = None,
    ) -> list[JobReport]:
        """Follow jobs until all of them are final or the time is up.

        Args:
            ids: Jobs of this or of another client.
            timeout_s: Seconds to wait at most; the jobs go on afterwards.
            progress: Called with all reports when something changed, and now and then.

        Returns:
            A report for each id, in order; not every state need be final.

        Raises:
            ConnectionLostError: The daemon ended meanwhile.
        """
        self._send(protocol.Wait(ids=tuple(ids), timeout_s=timeout_s))
        self._is_midway = True  # an interruption leaves answers under way on this connection
        deadline = time.monotonic() + timeout_s + ANSWER_S
        while True:
            reply = self._read(self._receive_frame(deadline))
            if isinstance(reply, protocol.Reports):
                self._is_midway = False
                return list(reply.reports)
            update = _expect(reply, protocol.Progress)
            if progress is not None:
                progress(list(update.reports))

    def status(self) -> protocol.StatusReply:
        """What the daemon is and is doing.

        Of a daemon of another version whose jobs cannot be read, only the first part.
        """
        self._send(protocol.Status())
        frame = self._receive_frame(time.monotonic() + ANSWER_S)
        try:
            return _expect(self._read(frame), protocol.StatusReply)
        except MalformedMessageError:
            return protocol.status_of_other_version(frame)

    def cancel(self, ids: Sequence[JobId], *, only_mine: bool = False) -> list[JobReport]:
        """Cancel jobs, with `only_mine` only those that nobody else asked for."""
        request = protocol.Cancel(ids=tuple(ids), only_mine=only_mine)
        return list(self._ask(request, protocol.Reports).reports)

    def logs(self, job: JobId = "", lines: int = 100) -> protocol.LogLines:
        """The last lines of a job's log, or of the daemon's."""
        return self._ask(protocol.Logs(id=job, lines=lines), protocol.LogLines)

    def stop(self, when: str = "now") -> protocol.Stopping:
        """End the daemon ("now", "drained" or "idle", see `protocol.Stop`); works with any version.

        For "now" and "idle" this returns once the process has ended.
        """
        reply = self._ask(protocol.Stop(when=when), protocol.Stopping)
        self.close()
        if reply.stopping and when != "drained":
            _wait_for_end(ANSWER_S)
        return reply

    def close(self) -> None:
        """Close the connection. Jobs go on."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, request: protocol.Request, kind: type[_T]) -> _T:
        if self._is_midway:
            self._reconnect()
        self._send(request)
        return _expect(self._read(self._receive_frame(time.monotonic() + ANSWER_S)), kind)

    def _ask_again(self, request: protocol.Request, kind: type[_T]) -> _T:
        """As `_ask`, but where the daemon has just ended, ask its successor."""
        try:
            return self._ask(request, kind)
        except ConnectionLostError:
            self._reconnect()
            return self._ask(request, kind)

    def _reconnect(self) -> None:
        self._channel.close()
        successor = _reach(*self._identity)
        self._channel, self.welcome = successor._channel, successor.welcome  # noqa: SLF001 - ours
        self._is_midway = False

    def _send(self, request: protocol.Request) -> None:
        try:
            self._channel.send(request)
        except ConnectionLostError as error:
            raise _with_log(error) from error

    def _receive_frame(self, deadline: float) -> bytes:
        try:
            frame = self._channel.receive_bytes(max(0.0, deadline - time.monotonic()))
        except ConnectionLostError as error:
            raise _with_log(error) from error
        if frame is None:
            raise RunnerError(
                f"the daemon at {paths.socket_path()} does not answer",
                "see `attngate daemon logs`; `attngate daemon stop --force` ends it",
            )
        return frame

    def _read(self, frame: bytes) -> protocol.Reply:
        reply = protocol.decode_reply(frame)
        self.warnings += [text for text in reply.warnings if text not in self.warnings]
        return reply


def package_version() -> str:
    """The version of the installed package, "unknown" in a bare source tree."""
    try:
        return metadata.version("attngate")
    except metadata.PackageNotFoundError:
        return "unknown"


def running_process() -> int | None:
    """The process that listens at the socket, as the kernel knows it; None where there is none.

    Answers also when the daemon hangs.
    """
    try:
        link = channel.connect(str(paths.socket_path()), timeout_s=1.0)
    except OSError:
        return None
    with link:
        found = channel.peer(link)
        return found[0] if found else None


def kill_unresponsive() -> int:
    """Kill the daemon that holds the socket, for when it does not answer; returns its process.

    The process is the one that the kernel names as the listener, and only if it runs the daemon's
    program for this user.

    Raises:
        RunnerError: Nothing listens, or what does is not the daemon.
    """
    import psutil

    pid = running_process()
    if pid is None:
        raise NotRunningError("nothing listens at the daemon's socket", "")
    try:
        process = psutil.Process(pid)
        is_daemon = "attngate.gpu_runner.daemon" in process.cmdline()
        if not is_daemon or process.uids().real != os.getuid():
            raise ForeignSocketError(f"process {pid} at {paths.socket_path()} is not the daemon")
        process.kill()
    except psutil.Error as error:
        raise RunnerError(f"process {pid} cannot be killed: {error}") from error
    _wait_for_end(ANSWER_S)
    return pid


def is_alive() -> bool:
    """True while a daemon holds its lock, whether it answers or not."""
    with _lock(paths.life_lock(), wait=False) as held:
        return not held


def log_tail(lines: int = 15) -> str:
    """The end of the daemon's log, "" where there is none."""
    try:
        text = paths.daemon_log().read_bytes()[-64 * 1024 :].decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def _expect(reply: object, kind: type[_T]) -> _T:
    if isinstance(reply, kind):
        return reply
    if isinstance(reply, protocol.Refused):
        raise RunnerError(reply.message, reply.advice)
    raise MalformedMessageError(f"the daemon answered with a {type(reply).__name__}")


def _with_log(error: RunnerError) -> ConnectionLostError:
    tail = log_tail()
    about = f"its log, {paths.daemon_log()}, ends with:\n{tail}" if tail else ""
    return ConnectionLostError(f"the daemon is gone: {error.message}", about)


def _attach(name: str, token: str) -> Client | None:
    """Connect to a daemon that is there; None where nothing listens."""
    path = paths.socket_path()
    _require_own_socket(path)
    try:
        link = channel.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        raise RunnerError(f"cannot connect to {path}: {error.strerror or error}") from error
    found = channel.peer(link)
    if found is not None and found[1] != os.getuid():
        link.close()
        raise ForeignSocketError(
            f"the program that listens at {path} runs as user {found[1]}, not as you",
            "remove the socket, or stop that program",
        )
    return _greet(channel.Channel(link), name, token)


def _greet(link: channel.Channel, name: str, token: str) -> Client:
    try:
        return Client(link, name, token)
    except BaseException:
        link.close()
        raise


def _require_own_socket(path: Path) -> None:
    try:
        status = path.lstat()
    except OSError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        raise ForeignSocketError(
            f"{path} is not a socket of yours", "remove it: attngate makes it by itself"
        )


def _reach(name: str, token: str) -> Client:
    """Connect, starting the daemon where needed. One that ends at that moment is replaced once."""
    with contextlib.suppress(ConnectionLostError):
        client = _attach(name, token)
        if client is not None:
            return client
    with _lock(paths.start_lock(), wait=True):
        return _start_and_attach(name, token)


def _start_and_attach(name: str, token: str) -> Client:
    """Start the daemon unless another client just did, and wait until it answers."""
    deadline = time.monotonic() + START_S
    launched_at, was_alive = 0.0, False
    while time.monotonic() < deadline:
        with contextlib.suppress(ConnectionLostError):
            client = _attach(name, token)
            if client is not None:
                return client
        alive = is_alive()
        was_alive = was_alive or (alive and launched_at > 0)
        if launched_at and not alive and (was_alive or time.monotonic() > launched_at + _LOCK_S):
            break
        if not launched_at and not alive:
            launch()
            launched_at = time.monotonic()
        time.sleep(0.02)
    tail = log_tail()
    raise RunnerError(
        "the daemon could not be started" if launched_at else "the daemon does not answer",
        f"its log, {paths.daemon_log()}, ends with:\n{tail}" if tail else "",
    )


def launch() -> None:
    """Start the daemon process; it may find that another one is already there, and leave.

    Raises:
        RunnerError: Its program cannot be run, or its log cannot be written.
    """
    argv = [sys.executable, "-I", "-m", "attngate.gpu_runner.daemon"]
    try:
        spawn.detach(argv, env=spawn.daemon_environment(os.environ), log=str(paths.daemon_log()))
    except OSError as error:
        raise RunnerError(f"cannot write the daemon's log: {error}") from error


def _replace_if_idle(client: Client, name: str, token: str) -> Client:
    """Put a daemon of our own sources in the place of an idle one of other sources."""
    stopping = client.stop("idle")
    if stopping.stopping:
        return _reach(name, token)
    if client.welcome.protocol != protocol.PROTOCOL_VERSION:
        raise RunnerError(
            f"the running daemon (attngate {client.welcome.version}, process {client.welcome.pid}) "
            f"speaks protocol {client.welcome.protocol}, this one {protocol.PROTOCOL_VERSION}, and "
            f"it has {stopping.jobs} unfinished jobs",
            "wait for them, or run `attngate daemon stop`",
        )
    again = _attach(name, token)
    return again if again is not None else _reach(name, token)


def _wait_for_end(seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and is_alive():
        time.sleep(0.01)


@contextlib.contextmanager
def _lock(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold a file lock for the block; without `wait`, the value tells whether it was free."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
