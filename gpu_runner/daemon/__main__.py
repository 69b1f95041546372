"""Start of the daemon: `python -I -m attngate.gpu_runner.daemon [--foreground]`.

The process that is started makes the second fork and ends, so that nobody has to wait for the daemon
as a child. Which of several daemons serves is decided by a lock that it holds for life.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import stat
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_IDLE_S = 1800.0
_LOCK_S = 5.0
_BACKLOG = 128


def main(worker: Path | None = None) -> None:
    """Become the daemon, or leave when there is one.

    Args:
        worker: Folder of the worker's sources; by default the one of this package.
    """
    if "--foreground" not in sys.argv[1:]:
        if os.fork():
            os._exit(0)
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        os.chdir("/")
        os.umask(0o077)
    from attngate.gpu_runner import paths
    from attngate.gpu_runner.daemon import log

    log.configure()
    path = paths.socket_path()
    if not _take_life_lock(paths.life_lock()):
        log.logger().info("another daemon is running; this one leaves", pid=os.getpid())
        return
    log.rotate(paths.daemon_log())
    _serve(path, worker)


def _serve(path: Path, worker: Path | None) -> None:
    from attngate.gpu_runner.daemon import dispatch
    from attngate.gpu_runner.daemon.server import Server
    from attngate.gpu_runner.evidence.key import WORKER_FOLDER

    _remove_stale(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        server = Server(listener, path, _idle_exit_s(), dispatch.handle, worker or WORKER_FOLDER)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: server.end("now"))
        listener.listen(_BACKLOG)  # last: whoever can connect is answered
        server.serve()


def _take_life_lock(path: Path) -> bool:
    """Lock for the life of the process. A daemon that is ending, or a client's look, may hold it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _remove_stale(path: Path) -> None:
    """Remove the socket of a daemon that is gone: with the lock held, no other daemon has it.

    Anything else at that path stays, and is an error.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.getuid():
        sys.exit(f"attngate: {path} is not a socket of this user; remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    sys.exit(f"attngate: another program listens at {path}; stop it")


def _idle_exit_s() -> float:
    try:
        return max(0.1, float(os.environ.get("ATTNGATE_IDLE_S", "")))
    except ValueError:
        return DEFAULT_IDLE_S


if __name__ == "__main__":
    main()
